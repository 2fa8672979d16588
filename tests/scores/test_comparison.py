"""Methods compared on one training and one test set: scores as defined, nothing dropped in silence."""

import re
from typing import Any

import numpy as np
import pytest
import xarray as xr
from sklearn.neighbors import KNeighborsRegressor

import labelled
from specinvert.baselines import make_method
from specinvert.figures.comparison import plot_comparison
from specinvert.scores.comparison import compare, format_comparison


class Constant:
    """Answers the same whatever the spectrum."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Constant":
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.tile(self.values, (len(X), 1))


class Broken(Constant):
    """Fails to fit."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Constant":
        raise RuntimeError("no\nsolution")


QUICK = {"sir-1": {"n_slices": 5}, "lut": {"n_neighbors": 3}}


def compared(methods: Any, **changes: Any) -> xr.Dataset:
    """A comparison on a small labelled set."""
    return compare(labelled.make_training(120), labelled.make_training(50, seed=1), methods, **changes)


def test_scores_are_those_of_the_estimates() -> None:
    train, test = labelled.make_training(120), labelled.make_training(50, seed=1)
    table = compare(train, test, ["sir-1", "lut"], options=QUICK)
    assert dict(table.sizes) == {"method": 2, "parameter": 2}
    assert table["method"].values.tolist() == ["sir-1", "lut"]
    assert table["parameter"].values.tolist() == labelled.PARAMETERS
    assert table.attrs == {"n_train": 120, "n_test": 50, "n_left_out": 0}
    truth = np.stack([test[name] for name in labelled.PARAMETERS], axis=1)
    X, y = train["reflectance"].values, np.stack([train[name] for name in labelled.PARAMETERS], axis=1)
    for name, options in QUICK.items():
        off = make_method(name, 0, **options).fit(X, y).predict(test["reflectance"].values) - truth
        row = table.sel({"method": name})
        np.testing.assert_allclose(row["nrmse"], np.sqrt((off**2).sum(axis=0) / len(off)) / truth.std(axis=0))
        np.testing.assert_allclose(row["rmse"], np.sqrt((off**2).mean(axis=0)))
        np.testing.assert_allclose(row["mae"], np.abs(off).mean(axis=0))
        np.testing.assert_allclose(row["bias"], off.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(row["r2"], 1 - row["nrmse"] ** 2)
        assert float(row["fit_seconds"]) > 0
        assert float(row["predict_seconds"]) > 0
        assert row["error"].item() == ""


def test_extreme_errors_are_above_a_third_of_the_training_range() -> None:
    train, test = labelled.make_training(120), labelled.make_training(200, seed=1)
    table = compare(train, test, {"at zero": Constant([0.0, 0.0])})
    for name in labelled.PARAMETERS:
        limit = float(train[name].max() - train[name].min()) / 3
        expected = float((np.abs(test[name]) > limit).mean())
        assert 0.5 < expected < 0.8
        assert float(table["extreme_share"].sel({"method": "at zero", "parameter": name})) == pytest.approx(expected)


def test_a_method_that_fails_is_reported_and_the_others_go_on() -> None:
    table = compared({"bad": Broken([0.0, 0.0]), "look-up": "lut"})
    assert table["error"].values.tolist() == ["RuntimeError: no solution", ""]
    scores = table.drop_vars(["error", "warning"])
    assert all(np.isnan(values.sel({"method": "bad"})).all() for values in scores.data_vars.values())
    assert all(np.isfinite(values.sel({"method": "look-up"})).all() for values in scores.data_vars.values())
    assert "bad: error: RuntimeError: no solution" in format_comparison(table)


class Odd(Constant):
    """Gives what it was made with as its estimates of the test set, and leaves zeros in the arrays that it is given."""

    def __init__(self, estimates: Any) -> None:
        self.estimates = estimates

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Odd":
        X[:], y[:] = 0.0, 0.0
        return self

    def predict(self, X: np.ndarray) -> Any:
        X[:] = 0.0
        return self.estimates


@pytest.mark.parametrize(
    ("estimates", "message"),
    [
        (np.zeros((2, 50)), r"the estimates have shape \(2, 50\), not \(50, 2\)"),
        (np.full((50, 2), "a"), "could not convert string"),
        (np.full((50, 2), 1j), "the estimates are complex numbers"),
        (None, r"the estimates have shape \(\), not"),
        (np.where(np.arange(50)[:, None] < 3, np.nan, np.ones((50, 2))), "the estimates of 3 of 50 spectra are NaN"),
    ],
)
def test_estimates_that_are_none_fail_the_method_alone(estimates: Any, message: str) -> None:
    alone = compared({"lut": "lut"})
    table = compared({"odd": Odd(estimates), "lut": "lut"})
    assert re.search(message, str(table["error"].values[0]))
    assert np.isnan(table["nrmse"].values[0]).all()
    np.testing.assert_array_equal(table["nrmse"].values[1], alone["nrmse"].values[0])
    assert "failed" not in [text.get_text() for text in plot_comparison(table).axes[-1].texts]


def test_a_single_test_spectrum_has_errors_but_no_nrmse() -> None:
    test = labelled.make_training(50, seed=1).isel(sample=[0])
    table = compare(labelled.make_training(120), test, {"lut": "lut", "bad": Broken([0.0, 0.0])})
    assert np.isfinite(table["rmse"][0]).all()
    assert np.isnan(table["nrmse"][0]).all()
    axes = plot_comparison(table).axes
    assert [text.get_text() for text in axes[0].texts] == ["undefined", "failed"]
    assert axes[0].get_xlim() == (0.0, 1.0)


def test_warnings_of_a_method_are_kept() -> None:
    table = compared(["rvm", "lut"], options={"rvm": {"kernel": "gaussian", "scale": 2.0, "max_iter": 1}})
    assert "did not converge in 1 changes" in table["warning"].sel({"method": "rvm"}).item()
    assert table["warning"].sel({"method": "lut"}).item() == ""


def test_test_spectra_that_lack_a_band_are_left_out_for_all_and_counted() -> None:
    train, test = labelled.make_training(120), labelled.make_training(50, seed=1)
    holed = test.copy(deep=True)
    holed["reflectance"][3, 2] = np.nan
    holed["dust"][7] = np.nan
    table = compare(train, holed, ["lut"])
    assert (table.attrs["n_test"], table.attrs["n_left_out"]) == (48, 2)
    kept = test.drop_isel(sample=[3, 7])
    xr.testing.assert_allclose(table["nrmse"], compare(train, kept, ["lut"])["nrmse"])


def test_bands_of_the_test_set_are_matched_and_any_dimensions_will_do() -> None:
    train = labelled.make_training(120)
    test = labelled.make_training(30, seed=1)
    plain = compare(train, test, ["lut"])["nrmse"]
    cube = test.assign_coords(y=("sample", np.repeat(np.arange(5), 6)), x=("sample", np.tile(np.arange(6), 5)))
    cube = (
        cube.set_index(sample=("y", "x")).unstack("sample").isel(band=slice(None, None, -1)).transpose("x", "band", "y")
    )
    xr.testing.assert_allclose(compare(train, cube, ["lut"])["nrmse"], plain)
    xr.testing.assert_allclose(compare(train.chunk(sample=50), cube.chunk(x=2), ["lut"])["nrmse"], plain)


def test_parameters_may_be_chosen_and_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    table = compared(
        {"nearest": KNeighborsRegressor(1), "lut": "lut"},
        parameters=["dust"],
        progress=lambda *state: told.append(state),
    )
    assert table["parameter"].values.tolist() == ["dust"]
    assert told == [("nearest", 0, 2), ("lut", 1, 2)]


@pytest.mark.parametrize(
    ("methods", "changes", "message"),
    [
        ("lut", {}, r"must be a list of names: use \['lut'\]"),
        ([], {}, "there is no method to compare"),
        (["lut", "lut"], {}, "name one twice"),
        (["lut", "svm"], {}, "method 'svm' is not one of"),
        (["lut"], {"options": {"rf": {}}}, "options for 'rf'"),
        (["lut"], {"parameters": []}, "parameters is empty"),
        (["lut"], {"parameters": ["chlorophyll"]}, "'chlorophyll' not in the Dataset"),
    ],
)
def test_bad_requests_are_refused_before_any_fit(methods: Any, changes: dict[str, Any], message: str) -> None:
    told: list[Any] = []
    with pytest.raises(ValueError, match=message):
        compared(methods, progress=lambda *state: told.append(state), **changes)
    assert not told


def test_options_and_objects_of_other_kinds_are_refused() -> None:
    with pytest.raises(TypeError, match="n_trees"):
        compared(["rf"], options={"rf": {"n_trees": 3}})
    with pytest.raises(TypeError, match="method 'mine' is of type int; give a name or a regressor"):
        compared({"mine": 3})


def test_a_test_set_without_a_whole_spectrum_is_refused() -> None:
    test = labelled.make_training(10, seed=1)
    test["reflectance"][:, 1] = np.nan
    with pytest.raises(ValueError, match="none of the 10 test spectra has all bands and parameters"):
        compare(labelled.make_training(60), test, ["lut"])


def test_the_text_has_a_line_a_method_and_a_column_a_parameter() -> None:
    table = compared({"zero": Constant([0.0, 0.0]), "lut": "lut"})
    lines = format_comparison(table, "extreme_share").splitlines()
    assert lines[0].split() == ["extreme_share", *labelled.PARAMETERS, "fit", "s", "predict", "s"]
    assert [line.split()[0] for line in lines[1:]] == ["zero", "lut"]
    assert float(lines[1].split()[1]) == pytest.approx(float(table["extreme_share"][0, 0]), rel=1e-3)
    with pytest.raises(ValueError, match="score 'fit_seconds' is not one of nrmse, rmse"):
        format_comparison(table, "fit_seconds")


def test_the_figure_shows_every_parameter_and_fills_the_best() -> None:
    table = compared({"bad": Broken([0.0, 0.0]), "zero": Constant([0.0, 0.0]), "lut": "lut"})
    figure = plot_comparison(table)
    water, dust, seconds = figure.axes
    assert [ax.get_title() for ax in figure.axes] == ["water", "dust", "time to fit"]
    assert (water.get_xlabel(), seconds.get_xlabel()) == ("NRMSE", "s")
    assert [label.get_text() for label in water.get_yticklabels()] == ["bad", "zero", "lut"]
    for ax, name in ((water, "water"), (dust, "dust")):
        dots = ax.collections[-1]
        np.testing.assert_allclose(dots.get_offsets()[1:, 0], table["nrmse"].sel({"parameter": name})[1:])
        filled = [tuple(colour[:3]) != (1.0, 1.0, 1.0) for colour in dots.get_facecolors()]
        assert filled == [False, False, True]
        assert "failed" in [text.get_text() for text in ax.texts]
    assert plot_comparison(table, "rmse").axes[0].get_xlabel() == "RMSE (g m-2)"
    with pytest.raises(ValueError, match="score 'error' is not one of"):
        plot_comparison(table, "error")
