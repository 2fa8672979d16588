"""Choosing K and L_w: the known model is found, scores are what they say, and bad grids are refused before any fit."""

import warnings
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr

from labelled import QUICK, assert_same_fit, make_training, refuses
from specinvert import GLLiMInverter
from specinvert.figures.comparison import MOST_LINES, plot_selection
from specinvert.gllim.core.arrays import row_hash
from specinvert.gllim.em.statistics import log_joint_density
from specinvert.model_selection import grid as grid_fits
from specinvert.model_selection.select import Selection, select_model
from specinvert.scores.selection import best_of, edges_of, format_selection

SETTINGS = {name: value for name, value in QUICK.items() if name != "n_components"}
EDGE = "ignore:the best by .* lies at the edge:UserWarning"


def drawn(n: int = 400) -> xr.Dataset:
    """Samples of a known model: K = 3, D = 6, one parameter and one latent."""
    rng = np.random.default_rng(7)
    component, w = rng.integers(3, size=n), rng.normal(size=n)
    t = 9.0 * component + rng.normal(size=n)
    slopes, latent, intercepts = rng.normal(size=(3, 6)), rng.normal(size=(3, 6)), 3.0 * rng.normal(size=(3, 6))
    y = slopes[component] * t[:, None] + latent[component] * w[:, None] + intercepts[component]
    y += 0.1 * rng.normal(size=y.shape)
    return xr.Dataset({"radiance": (("sample", "band"), y), "t": ("sample", t)})


def chosen(data: xr.Dataset, **options: Any) -> Selection:
    """A quick choice without a word on edges."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the best by")
        return select_model(data, [2, 3], [0, 1], **{**SETTINGS, "refit": False, **options})


def test_bic_and_held_out_likelihood_find_the_model_that_samples_were_drawn_from() -> None:
    found = select_model(drawn(), [1, 2, 3, 4], [0, 1, 2], band_dim="band", tol=1e-2, refit=False)
    assert found.best == {"n_components": 3, "n_latent": 1}
    assert found.inverter is None
    _, column = best_of(found.table, "held_out")
    assert found.table["n_latent"][column] >= 1
    assert (found.table["converged"]).all()


def test_scores_are_those_of_a_fit_to_the_samples_not_held_out() -> None:
    data = make_training(200)
    table = chosen(data, held_out=0.3).table
    rows = np.concatenate([data["water"].values[:, None], data["dust"].values[:, None], data["reflectance"]], axis=1)
    out = row_hash(rows) < np.uint64(0.3 * 2.0**64)
    assert table.attrs["n_held_out"] == out.sum()
    rest, held = data.isel(sample=~out), data.isel(sample=out)
    inverter = GLLiMInverter(3, 1, **SETTINGS).fit(rest)
    cell = table.sel(n_components=3, n_latent=1)
    theta = inverter.parameters_
    targets = np.stack([held["water"], held["dust"]], axis=1)
    density = log_joint_density(theta, held["reflectance"].values, targets)
    np.testing.assert_allclose(cell["held_out_log_likelihood"], density.mean(), rtol=1e-10)
    np.testing.assert_allclose(cell["held_out_nrmse"], inverter.evaluate(held)["nrmse"], rtol=1e-8)
    np.testing.assert_allclose(cell["log_likelihood"], inverter.log_likelihoods_[-1], rtol=1e-10)
    np.testing.assert_allclose(cell["bic"], inverter.bic_, rtol=1e-10)
    n_free = int(cell["n_free_parameters"])
    assert n_free == 3 * (8 * 4 + 2 * 5 // 2 + 1) + 3 - 1
    np.testing.assert_allclose(cell["aic"], -2 * inverter.log_likelihoods_[-1] + 2 * n_free, rtol=1e-10)
    assert cell["icl"] > cell["bic"]


def test_weights_are_frequencies_of_the_samples_held_out_too() -> None:
    data = make_training(200)
    twice = chosen(data.assign(count=("sample", np.full(200, 2.0))), parameters=["water", "dust"], weights="count")
    once = chosen(data)
    np.testing.assert_allclose(twice.table["log_likelihood"], 2.0 * once.table["log_likelihood"], rtol=1e-6)
    for name in ("held_out_log_likelihood", "held_out_nrmse"):
        np.testing.assert_allclose(twice.table[name], once.table[name], rtol=1e-6)


def test_every_scheduler_gives_the_same_bits_and_samples_in_another_order_are_held_out_alike() -> None:
    told: list[tuple[str, int, int]] = []
    data = make_training(200)
    with dask.config.set(scheduler="synchronous"):
        first = chosen(data, progress=lambda *event: told.append(event)).table.drop_vars("seconds")
    with dask.config.set(scheduler="threads"):
        xr.testing.assert_identical(chosen(data).table.drop_vars("seconds"), first)
    assert sorted(label for label, _, _ in told) == [f"K = {k}, L_w = {w}" for k in (2, 3) for w in (0, 1)]
    assert [(done, count) for _, done, count in told] == [(i, 4) for i in range(1, 5)]
    lazy = chosen(data.chunk(sample=70)).table
    np.testing.assert_allclose(lazy["log_likelihood"], first["log_likelihood"], rtol=1e-6)
    shuffled = chosen(data.isel(sample=np.random.default_rng(3).permutation(200))).table
    assert shuffled.attrs["n_held_out"] == first.attrs["n_held_out"]


def test_the_inverter_is_that_of_a_fit_to_all_samples_with_noise() -> None:
    data = make_training(200)
    found = chosen(data, refit=True, noise=0.01, criterion="held_out", random_state=4)
    expected = GLLiMInverter(**found.best, **{**SETTINGS, "random_state": 4}).fit(data, noise=0.01)
    assert found.inverter is not None
    assert_same_fit(found.inverter, expected)


def test_without_samples_held_out_the_fits_are_of_all_and_their_columns_are_nan() -> None:
    data = make_training(150)
    table = chosen(data, held_out=None).table
    assert table["held_out_log_likelihood"].isnull().all()
    assert table["held_out_nrmse"].isnull().all()
    expected = GLLiMInverter(2, 0, **SETTINGS).fit(data)
    assert table["bic"].sel(n_components=2, n_latent=0) == expected.bic_


def test_a_best_at_the_edge_is_told_with_what_to_do() -> None:
    with pytest.warns(UserWarning, match="edge of the grid") as told:
        select_model(make_training(300), [2, 4], [0, 1], refit=False, **SETTINGS)
    text = " ".join(str(warning.message) for warning in told)
    assert "n_components=4 is the largest tried: try larger ones" in text
    assert "n_latent=1 is the largest tried: try larger ones" in text


@pytest.mark.parametrize(
    ("sizes", "dimensions", "best", "words"),
    [
        ([1, 2], [0, 1, 2], (0, 0), []),
        ([2, 5, 9], [1, 2, 3], (0, 0), ["n_components=2 is the smallest", "n_latent=1 is the smallest"]),
        ([2, 5, 9], [1, 2, 3], (2, 2), ["n_components=9 is the largest"]),
        ([2, 5, 9], [1, 2, 3], (1, 1), []),
        ([5], [0], (0, 0), []),
    ],
)
def test_edges_beyond_which_nothing_is_left_to_try_are_none(
    sizes: list[int], dimensions: list[int], best: tuple[int, int], words: list[str]
) -> None:
    found = edges_of(xr.Dataset(coords={"n_components": sizes, "n_latent": dimensions}), best, n_bands=4)
    assert [text.split(" tried")[0] for text in found] == words


@pytest.mark.filterwarnings(EDGE)
def test_a_fit_that_fails_is_nan_with_its_reason_and_all_that_fail_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train = grid_fits.train

    def failing(source: Any, settings: Any, *rest: Any) -> Any:
        if settings.n_components == worst or worst == 0:
            raise ValueError("all components degenerated")
        return train(source, settings, *rest)

    monkeypatch.setattr(grid_fits, "train", failing)
    worst = 3
    with pytest.warns(UserWarning, match=r"2 of 4 fits failed .*K = 3, L_w = 0 \(all components degenerated\)"):
        found = select_model(make_training(), [2, 3], [0, 1], refit=False, **SETTINGS)
    failed = found.table.sel(n_components=3)
    assert failed["bic"].isnull().all()
    assert failed["failure"].values.tolist() == ["all components degenerated"] * 2
    assert found.best["n_components"] == 2
    assert found.table.sel(n_components=2)["failure"].values.tolist() == ["", ""]
    assert "-" in format_selection(found.table, "bic").splitlines()[-1].split()
    worst = 0
    with refuses(ValueError, "all 4 fits failed: K = 2, L_w = 0 (all components degenerated)"):
        select_model(make_training(), [2, 3], [0, 1], refit=False, **SETTINGS)


@pytest.mark.filterwarnings(EDGE)
def test_fits_that_have_not_converged_are_told_once() -> None:
    with pytest.warns(UserWarning, match="did not converge in max_iter=2 iterations, their criteria") as told:
        select_model(make_training(), [2, 3], [0], tol=1e-9, max_iter=2, refit=False)
    assert sum("converge" in str(warning.message) for warning in told) == 1


def test_bad_input_is_refused_before_any_fit(subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, message in [
        ({"n_components": []}, "n_components=[] must hold integers, 1 or more"),
        ({"n_components": [0, 2]}, "n_components=[0, 2] must hold integers, 1 or more"),
        ({"n_components": "ten"}, "n_components='ten' must be a sequence"),
        ({"n_latent": [-1]}, "n_latent=[-1] must hold integers, 0 or more"),
        ({"n_latent": ["bic"]}, "n_latent=['bic'] must hold integers"),
        ({"n_latent": [0, 8]}, "n_latent=8 is not below the 8 bands"),
        ({"n_components": [2, 40]}, "n_components=40 components of 4 samples or more (L_t + 2) need 160 samples"),
        ({"criterion": "dic"}, "criterion='dic' is not one of 'bic', 'aic', 'icl', 'held_out'"),
        ({"held_out": 0.0}, "held_out=0.0 must be a share above 0 and below 1"),
        ({"held_out": 1}, "held_out=1 must be a share"),
        ({"held_out": 1e-9}, "no sample of weight above zero is held out of 150"),
        ({"held_out": None, "criterion": "held_out"}, "needs spectra held out"),
        ({"n_ensemble": 3}, "n_ensemble=3 does not go with a grid"),
        ({"max_latent": 3}, "n_latent lists the L_w to try"),
        ({"parameters": [], "n_latent": [0, 1]}, "unsupervised"),
        ({"parameters": ["ice"]}, "'ice'"),
        ({"sigma": "round"}, "sigma='round'"),
    ]:
        with subtests.test(options=options):
            monkeypatch.setattr(grid_fits, "train", lambda *_: pytest.fail("fitted"))
            with refuses(ValueError, message):
                select_model(make_training(), **{"n_components": [2, 3], "n_latent": [0, 1], **options})


def test_constant_bands_are_refused_before_any_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_fits, "train", lambda *_: pytest.fail("fitted"))
    data = make_training()
    data["reflectance"][:, 0] = 0.25
    with refuses(ValueError, "constant band in training: 450 nm (always 0.25)"):
        select_model(data, [2, 3], [0])


@pytest.mark.filterwarnings(EDGE)
def test_unsupervised_models_are_compared_too() -> None:
    found = select_model(make_training(), [2], [1, 2], parameters=[], refit=False, criterion="held_out", **SETTINGS)
    assert found.table["held_out_log_likelihood"].notnull().all()
    assert found.table["held_out_nrmse"].shape == (1, 2, 0)


def made(n_latent: int) -> xr.Dataset:
    """A table whose BIC is least in the middle, one fit missing."""
    sizes, dimensions = [2, 5, 10], np.arange(n_latent)
    bic = 100.0 * (np.arange(3)[:, None] - 1) ** 2 + 10.0 * (dimensions - 1) ** 2
    bic[0, 0] = np.nan
    axes = ("n_components", "n_latent")
    return xr.Dataset(
        {"bic": (axes, bic), "held_out_log_likelihood": (axes, -bic)},
        coords={"n_components": sizes, "n_latent": dimensions},
    )


@pytest.mark.parametrize("criterion", ["bic", "held_out"])
def test_curves_are_one_a_latent_dimension_with_the_best_ringed(criterion: str) -> None:
    ax = plot_selection(made(3), criterion).axes[0]
    *lines, ring = ax.lines
    assert [line.get_label() for line in lines] == ["L_w = 0", "L_w = 1", "L_w = 2"]
    assert ax.get_title() == "best: K = 5, L_w = 1 (ringed)"
    assert (ring.get_xdata(), ring.get_ydata()) == ([5], [0.0])
    np.testing.assert_array_equal(
        lines[1].get_ydata(), np.array([100.0, 0.0, 100.0]) * (1 if criterion == "bic" else -1)
    )
    assert [text.get_text() for text in ax.texts] == ["not tried"] * 2


def test_large_grids_are_maps_with_the_best_ringed() -> None:
    figure = plot_selection(made(MOST_LINES + 1))
    (ring,) = figure.axes[0].lines
    assert (ring.get_xdata(), ring.get_ydata()) == ([1.5], [1.5])
    assert len(figure.axes) == 2
    with refuses(ValueError, "criterion='x' is not one of"):
        plot_selection(made(3), "x")


def test_a_selection_draws_its_own_criterion() -> None:
    found = chosen(make_training())
    other = Selection(found.table, "aic", found.best, None)
    assert other.plot().axes[0].get_ylabel().startswith("AIC")
    assert repr(other).startswith("<Selection by aic of 4 fits: n_components=")
