"""Transformed parameters from training to maps: within bounds, quantiles mapped, known values and files included."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import reference
from bounded import NAMES, PARTS, SETTINGS, TRANSFORMS, bounded, logarithmic, make_training, scaled_spectra
from labelled import assert_close, refuses
from specinvert import GLLiMInverter, load_inverter

OUTPUTS = ("mean", "std", "q05", "q5", "q95", "ci90", "mode", "cov", "entropy", "residual", "log_evidence", "flag")
BELOW, ABOVE, OUT_OF_DOMAIN = 8, 16, 4


def assert_within_bounds(maps: xr.Dataset) -> None:
    """Every estimate but deviations; NaN, where float64 cannot hold it, is flagged."""
    lower = {"grain": 0.0, "cover": -1.0, "lai": 0.0, **dict.fromkeys(PARTS, 0.0)}
    upper = {"grain": np.inf, "cover": 3.0, "lai": np.inf, **dict.fromkeys(PARTS, 1.0)}
    odd = (maps["quality_flag"].values & OUT_OF_DOMAIN) == 0
    for name in NAMES:
        for suffix in ("", "_q05", "_q95", "_mode"):
            values = maps[f"{name}{suffix}"].values
            assert not np.isnan(values[odd]).any(), name + suffix
            finite = values[~np.isnan(values)]
            assert len(finite), name + suffix
            assert finite.min() >= lower[name], name + suffix
            assert finite.max() <= upper[name], name + suffix
        deviation = maps[f"{name}_std"].values
        assert (deviation[~np.isnan(deviation)] >= 0).all(), name
        if np.isfinite(upper[name]):
            assert np.nanmax(deviation) <= 0.5 * (upper[name] - lower[name]) * (1 + 1e-6), name


@pytest.mark.filterwarnings("ignore:the values of the spectra are about")
@pytest.mark.parametrize("n_ensemble", [1, 2])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_estimates_of_absurd_spectra_are_within_the_bounds(scale: float, n_ensemble: int) -> None:
    n = 1000 if n_ensemble == 1 else 100
    outputs = ("mean", "std", "q05", "q95", "mode", "flag")
    maps = bounded(n_ensemble).invert(scaled_spectra(scale, n), outputs=outputs)
    assert_within_bounds(maps)
    for suffix in ("", "_mode"):
        total = sum(maps[f"{part}{suffix}"] for part in PARTS)
        np.testing.assert_allclose(total.values[total.notnull()], 1.0, rtol=1e-9)
    if scale == 1e6:
        assert ((maps["quality_flag"] & OUT_OF_DOMAIN) > 0).all()


def test_the_estimate_is_the_median_where_a_log_or_a_logit_skews_the_posterior() -> None:
    spectra = make_training(20, seed=4)["reflectance"]
    maps = bounded().invert(spectra)
    means, medians = (bounded().invert(spectra, outputs=(what,)) for what in ("mean", "median"))
    kinds = {name: maps[name].attrs["estimate"] for name in NAMES}
    assert kinds == {"grain": "median", "cover": "median", "lai": "mean", **dict.fromkeys(PARTS, "mean")}
    for name, kind in kinds.items():
        expected = means[name] if kind == "mean" else medians[f"{name}_median"]
        np.testing.assert_allclose(maps[name], expected, rtol=1e-12)
        assert means[name].attrs["estimate"] == "mean"
    assert (abs(means["grain"] / maps["grain"] - 1.0) > 1e-9).all()
    scores = bounded().evaluate(make_training(50, seed=5))
    test = make_training(50, seed=5)
    errors = bounded().invert(test["reflectance"])["grain"] - test["grain"]
    np.testing.assert_allclose(scores["rmse"].sel(parameter="grain"), np.sqrt((errors**2).mean()), rtol=1e-9)
    with refuses(ValueError, "['estimate', 'mean'] give the same variables"):
        bounded().invert(spectra, outputs=("estimate", "mean"))


def test_estimates_of_spectra_like_the_training_set_are_near_the_truth_and_their_intervals_hold_it() -> None:
    test = make_training(150, seed=2)
    maps = bounded().invert(test["reflectance"], outputs=("mean", "ci90"))
    for name in NAMES:
        inside = (maps[f"{name}_ci90_lower"] <= test[name]) & (test[name] <= maps[f"{name}_ci90_upper"])
        assert float(inside.mean()) > 0.8, name
        assert float(((maps[name] - test[name]) ** 2).mean()) < float(test[name].var()), name


@pytest.mark.parametrize("name", ["grain", "cover", "lai"])
def test_quantiles_are_those_of_the_model_s_parameter_transformed_back(name: str) -> None:
    spectra = make_training(20, seed=3)["reflectance"]
    maps = bounded().invert(spectra, outputs=("q05", "q5", "q95", "ci90"))
    posterior = bounded().posterior(spectra)
    forward = {
        "grain": np.log,
        "cover": lambda t: np.log((t + 1.0) / (3.0 - t)),
        "lai": np.sqrt,
    }[name]
    mean = posterior["mean"].sel(parameter=name).values
    variance = posterior["covariance"].sel(parameter=name, parameter_2=name).values
    for output, level in {"q05": 0.05, "q5": 0.5, "q95": 0.95, "ci90_lower": 0.05, "ci90_upper": 0.95}.items():
        values = maps[f"{name}_{output}"].values
        z = forward(values)[:, None]
        below = (posterior["weight"].values * norm.cdf((z - mean) / np.sqrt(variance))).sum(axis=1)
        inside = values > (0.0 if name == "lai" else -1.0)
        assert inside.sum() > 10
        np.testing.assert_allclose(below[inside], level, atol=1e-7)
        assert (below[~inside] > level).all()


def test_means_and_deviations_are_those_of_draws_from_the_posterior() -> None:
    spectra = make_training(4, seed=4)["reflectance"]
    maps = bounded().invert(spectra, outputs=("mean", "std", "cov"))
    posterior = bounded().posterior(spectra)
    assert list(posterior["parameter"].values) == ["grain", "cover", "lai", "ilr(ice,rock,soil)[0]",
                                                   "ilr(ice,rock,soil)[1]"]  # fmt: skip
    rng = np.random.default_rng(0)
    for row in range(4):
        weights = posterior["weight"][row].values
        counts = rng.multinomial(100_000, weights / weights.sum())
        z = np.concatenate(
            [
                rng.multivariate_normal(posterior["mean"][row, k].values, posterior["covariance"][row, k].values, count)
                for k, count in enumerate(counts)
            ]
        )
        t = bounded().model_.transforms.inverse(z)
        for i, name in enumerate(NAMES):
            deviation = float(maps[f"{name}_std"][row])
            assert float(maps[name][row]) == pytest.approx(t[:, i].mean(), abs=0.05 * deviation), name
            if name != "grain":  # heavy tails
                assert deviation == pytest.approx(t[:, i].std(), rel=0.05), name
        scale = np.outer(*[maps["covariance"][row].values.diagonal() ** 0.5] * 2)
        np.testing.assert_allclose(maps["covariance"][row].values[1:, 1:] / scale[1:, 1:],
                                   np.cov(t.T)[1:, 1:] / scale[1:, 1:], atol=0.06)  # fmt: skip


def test_known_values_are_those_of_the_reference_on_the_transformed_scale() -> None:
    spectra = make_training(6, seed=5)["reflectance"]
    inverter = logarithmic()
    grain = np.array([5.0, 50.0, 500.0, np.nan, 20.0, np.nan])
    maps = inverter.invert(spectra, 0.01, {"grain": xr.DataArray(grain, dims="sample")}, ("mean", "std", "cov"))
    theta = inverter.parameters_
    dense = reference.Theta(theta.pi, theta.c, theta.Gamma, theta.A, theta.b, theta.sigma_dense(), 0)
    for row in np.flatnonzero(~np.isnan(grain)):
        known = np.array([np.log(grain[row]), np.nan])
        expected = reference.conditional(dense, spectra.values[row], 1e-4 * np.eye(8), known)
        assert float(maps["grain"][row]) == grain[row]
        assert float(maps["grain_std"][row]) == 0.0
        assert (maps["covariance"][row].sel(parameter="grain") == 0).all()
        mean = expected["weights"] @ expected["means"][:, 0]
        gap = expected["means"][:, 0] - mean
        variance = expected["weights"] @ (expected["covariances"][:, 0, 0] + gap**2)
        assert float(maps["lai"][row]) == pytest.approx(mean, rel=1e-7)
        assert float(maps["lai_std"][row]) == pytest.approx(np.sqrt(variance), rel=1e-6)
    unknown = inverter.invert(spectra, 0.01, outputs=("mean", "std"))
    for row in np.flatnonzero(np.isnan(grain)):
        assert float(maps["grain"][row]) == pytest.approx(float(unknown["grain"][row]), rel=1e-9)


def test_known_values_of_every_transform_come_back_as_given_and_change_the_others() -> None:
    spectra = make_training(6, seed=5)["reflectance"]
    known = {"grain": 30.0, "cover": 0.5, "lai": 1.5}
    maps = bounded().invert(spectra, known=known, outputs=(*OUTPUTS,))
    for name, value in known.items():
        for suffix in ("", "_q05", "_ci90_upper"):
            assert (maps[f"{name}{suffix}"] == value).all(), name
        np.testing.assert_allclose(maps[f"{name}_mode"], value, rtol=1e-9)
        assert (maps[f"{name}_std"] == 0).all()
        assert (maps["covariance"].sel(parameter_2=name) == 0).all()
    plain = bounded().invert(spectra)
    assert (abs(maps["ice"] - plain["ice"]) > 1e-6).all()
    np.testing.assert_allclose(maps["ice"] + maps["rock"] + maps["soil"], 1.0, rtol=1e-9)


def test_ranges_and_flags_are_in_physical_units() -> None:
    training, maps = make_training(), bounded().invert(make_training(60, seed=6)["reflectance"])
    np.testing.assert_array_equal(bounded().model_.low, [training[name].min() for name in NAMES])
    np.testing.assert_array_equal(bounded().model_.high, [training[name].max() for name in NAMES])
    values = np.stack([maps[name].values for name in NAMES], axis=1)
    expected = (values > bounded().model_.high).any(axis=1)
    np.testing.assert_array_equal((maps["quality_flag"].values & ABOVE) > 0, expected)
    high = bounded().invert(make_training(5)["reflectance"], known={"grain": 1e6})["quality_flag"]
    assert ((high & ABOVE) > 0).all()
    low = bounded().invert(make_training(5)["reflectance"], known={"grain": 1e-3})["quality_flag"]
    assert ((low & BELOW) > 0).all()


@pytest.mark.parametrize("n_ensemble", [1, 2])
def test_evaluation_lazy_maps_and_a_saved_model_give_the_same(tmp_path: Path, n_ensemble: int) -> None:
    inverter, test = bounded(n_ensemble), make_training(40, seed=7)
    inverter.to_netcdf(tmp_path / "model.nc")
    loaded = load_inverter(tmp_path / "model.nc")
    assert loaded.transforms == TRANSFORMS
    maps = inverter.invert(test["reflectance"], outputs=OUTPUTS)
    for one, other in zip(loaded.members_, inverter.members_, strict=True):
        for key, array in one.arrays().items():
            np.testing.assert_array_equal(array, other.arrays()[key])
    assert loaded.model_.transforms == inverter.model_.transforms
    assert_close(loaded.invert(test["reflectance"], outputs=OUTPUTS), maps, rtol=1e-9)
    lazy = inverter.invert(test["reflectance"].chunk(sample=15), outputs=OUTPUTS)
    assert_close(lazy.compute(), maps, rtol=1e-7)
    scores, best = inverter.evaluate(test), inverter.invert(test["reflectance"])
    rmse = [float(np.sqrt(((best[name] - test[name]) ** 2).mean())) for name in NAMES]
    np.testing.assert_allclose(scores["rmse"], rmse, rtol=1e-12)
    assert list(scores["parameter"].values) == NAMES
    xr.testing.assert_allclose(loaded.evaluate(test), scores, rtol=1e-9)


def test_simulated_spectra_take_parameters_in_physical_units() -> None:
    training = make_training()
    error = bounded().simulate(training[NAMES]) - training["reflectance"]
    assert float((error**2).mean()) < 0.3 * float(training["reflectance"].var("sample").mean())


def test_training_values_on_a_bound_warn_with_their_count_and_names() -> None:
    training = make_training()
    training["cover"][:3] = -1.0
    training["cover"][3:5] = 3.0
    training["grain"][7] = 0.0
    inverter = GLLiMInverter(transforms=TRANSFORMS, n_latent=0, **SETTINGS)
    with pytest.warns(UserWarning, match=r"1 of 'grain' on 0, by .*3 of 'cover' on -1, by .*2 of 'cover' on 3, by "):
        inverter.fit(training)
    assert_within_bounds(inverter.invert(training["reflectance"][:50], outputs=OUTPUTS))


@pytest.mark.parametrize(
    ("name", "values", "parts"),
    [
        ("grain", [-1.0, -2.0], ("2 training values of 'grain'", "below the lower bound 0", "smallest is -2")),
        ("cover", [3.5], ("1 training values of 'cover'", "above the upper bound 3", "greatest is 3.5")),
        ("lai", [-0.1], ("'lai'", "below the lower bound 0")),
        ("ice", [0.9999], ("(ice, rock, soil)", "do not sum to one")),
    ],
)
def test_training_values_beyond_a_bound_are_refused_with_their_count(
    name: str, values: list[float], parts: tuple[str, ...]
) -> None:
    training = make_training()
    training[name][: len(values)] = values
    with refuses(ValueError, *parts):
        GLLiMInverter(transforms=TRANSFORMS, n_latent=0, **SETTINGS).fit(training)


@pytest.mark.parametrize(
    ("transforms", "parts"),
    [
        ({"sand": "log"}, ("'sand'", "grain")),
        ({"grain": "cube"}, ("'cube'", "'grain'")),
        ({"cover": ("logit", 1.0, 1.0)}, ("'cover'", "lower must be less than upper")),
        ({"ice": "ilr"}, ("'ice'", "tuple")),
        ({("ice", "rock"): "log"}, ("one entry a parameter",)),
        ({"ice": "log", ("ice", "rock", "soil"): "ilr"}, ("'ice'", "two entries")),
    ],
)
def test_transforms_that_make_no_sense_are_refused_in_one_line(transforms: Any, parts: tuple[str, ...]) -> None:
    with refuses(ValueError, *parts):
        GLLiMInverter(transforms=transforms, n_latent=0, **SETTINGS).fit(make_training())


def per_pixel(value: float) -> xr.DataArray:
    return xr.DataArray(np.full(5, value), dims="sample")


@pytest.mark.parametrize("make", [float, per_pixel])
def test_known_parts_of_a_composition_and_values_beyond_bounds_are_refused(make: Any) -> None:
    spectra = make_training(5)["reflectance"]
    with refuses(ValueError, "'rock'", "composition (ice, rock, soil)", "outside compositions"):
        bounded().invert(spectra, known={"rock": make(0.2)})
    with refuses(ValueError, "'cover'", "above the upper bound 3"):
        bounded().invert(spectra, known={"cover": make(3.5)})
    with refuses(ValueError, "'grain'", "below the lower bound 0"):
        bounded().invert(spectra, known={"grain": make(-1.0)})


def test_shortest_intervals_of_transformed_parameters_are_refused() -> None:
    with refuses(ValueError, "hdi", "without transforms", "'ci90'"):
        bounded().invert(make_training(5)["reflectance"], outputs=("mean", "hdi90"))


@cache
def many_draws() -> xr.Dataset:
    return bounded().invert(make_training(60, seed=6)["reflectance"], outputs=["draws40000"])


@pytest.mark.parametrize(("name", "interval"), [("cover", (0.0, 1.2)), ("grain", (0.0, 40.0)), ("lai", (1.0, np.inf))])
def test_an_interval_in_physical_units_keeps_the_draws_within_it(name: str, interval: tuple[float, float]) -> None:
    spectra, drawn = make_training(60, seed=6)["reflectance"], many_draws()
    inside = (drawn[f"{name}_draws"] >= interval[0]) & (drawn[f"{name}_draws"] <= interval[1])
    rows = np.flatnonzero((inside.mean("draw") > 0.2) & (inside.mean("draw") < 0.8))[:3]
    assert len(rows) == 3
    outputs = ("mean", "std", "cov", "q25", "q9", "log_evidence", "flag")
    maps = bounded().invert(spectra[rows], known={name: interval}, outputs=outputs)
    for row, i in enumerate(rows):
        kept = np.stack([drawn[f"{n}_draws"].values[i][inside.values[i]] for n in NAMES])
        error = 5.0 / np.sqrt(kept.shape[1])
        spread = np.cov(kept)
        for j, wanted in enumerate(NAMES):
            of = maps[[wanted, f"{wanted}_std", f"{wanted}_q25", f"{wanted}_q9"]].isel(sample=row)
            deviation = np.sqrt(spread[j, j])
            assert abs(float(of[wanted]) - kept[j].mean()) < error * deviation, wanted
            assert float(of[f"{wanted}_std"]) == pytest.approx(deviation, rel=4 * error), wanted
            for level in (0.25, 0.9):
                below = (kept[j] <= float(of[f"{wanted}_q{str(level)[2:]}"])).mean()
                assert below == pytest.approx(level, abs=error), wanted
        scale = np.sqrt(np.outer(np.diag(spread), np.diag(spread)))
        assert (abs(maps["covariance"].values[row] - spread) < 4 * error * scale).all()


def test_an_interval_of_the_whole_range_changes_nothing() -> None:
    spectra = make_training(5, seed=7)["reflectance"]
    free = bounded().invert(spectra, outputs=("mean", "std", "q1", "log_evidence"))
    for whole in ({"cover": (-1.0, 3.0)}, {"grain": (0.0, np.inf)}, {"lai": (-5.0, np.inf)}):
        xr.testing.assert_allclose(
            bounded().invert(spectra, known=whole, outputs=("mean", "std", "q1", "log_evidence")), free, rtol=5e-3
        )


def test_intervals_differ_from_pixel_to_pixel_and_stand_beside_known_values() -> None:
    spectra = make_training(40, seed=8)["reflectance"]
    low = xr.DataArray(np.where(np.arange(40) % 2, np.nan, 20.0), dims="sample")
    known = {"grain": (low, low + 100.0), "lai": 1.5}
    maps = bounded().invert(spectra, known=known)
    assert (maps["lai"] == 1.5).all()
    held = maps["grain"][::2]
    assert ((held > 20.0) & (held < 120.0)).all()
    free = bounded().invert(spectra, known={"lai": 1.5})
    np.testing.assert_allclose(maps["grain"][1::2], free["grain"][1::2], rtol=1e-5)
    lazy = bounded().invert(spectra.chunk(sample=7), known=known).compute()
    xr.testing.assert_allclose(lazy.drop_attrs(), maps.drop_attrs(), rtol=1e-12)


def test_intervals_that_a_transform_cannot_hold_are_refused() -> None:
    spectra = make_training(5)["reflectance"]
    with refuses(ValueError, "'cover' cannot lie from 3 to 4", "bounds -1 and 3"):
        bounded().invert(spectra, known={"cover": (3.0, 4.0)})
    with refuses(ValueError, "'rock'", "composition (ice, rock, soil)"):
        bounded().invert(spectra, known={"rock": (0.1, 0.2)})


def test_errors_of_parameters_under_a_log_are_told_in_decades_too() -> None:
    test = make_training(60, seed=2)
    scores = bounded().evaluate(test)
    estimate = bounded().invert(test["reflectance"])["grain"]
    expected = np.sqrt(((np.log10(estimate) - np.log10(test["grain"])) ** 2).mean())
    assert float(scores["rmse_decades"].sel(parameter="grain")) == pytest.approx(float(expected))
    assert float(scores["factor"].sel(parameter="grain")) == pytest.approx(10 ** float(expected))
    assert np.isnan(scores["factor"].sel(parameter=[name for name in NAMES if name != "grain"])).all()
    assert list(scores["parameter"].values) == list(NAMES)
    half = xr.zeros_like(test["grain"]).where(np.arange(60) < 30, 1.0)
    assert_close(
        bounded().evaluate(test, weights=half)[["factor"]],
        bounded().evaluate(test.isel(sample=slice(30, None)))[["factor"]],
    )
    test["grain"][:5] = -1.0
    assert float(bounded().evaluate(test)["rmse_decades"].sel(parameter="grain")) > 0.0
