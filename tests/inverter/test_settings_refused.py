"""Settings of the wrong kind or out of range: each refused in one line that names the setting, before any work."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from hdf_products import write_emit
from labelled import QUICK, fitted, make_cube, make_training, refuses
from specinvert import GLLiMInverter, open_cube, read_lookup, resample, resample_noise, save_maps, select_bands
from specinvert.gllim import GLLiM
from specinvert.nuisance import Discrepancy, Gain, Haze, Noise, Offset, ThinCloud, apply


def test_an_inverter_refuses_a_setting_when_it_is_given(subtests: pytest.Subtests) -> None:
    for name, value, part in [
        *(("max_latent", value, "0 or more") for value in (-1, True, [0, -1], [1.5])),
        *(("max_latent", value, "a sequence of them") for value in (1.5, np.nan, "three", [], None)),
        *(("random_state", value, "0 to 4294967295") for value in (-1, 2**32, 1.5, np.nan, True, "x", [1, 2])),
        ("ensemble_weights", np.ones(2), "'equal', 'stacked', 'evidence'"),
        *(("max_iter", value, "1 or more") for value in (0, True, 1.5, np.inf)),
        *(("tol", value, "zero or more") for value in (np.nan, np.inf, -1, True, [0.1])),
        ("n_ensemble", True, "1 or more"),
    ]:
        with subtests.test(name=name, value=value), refuses(ValueError, f"{name}=", part):
            GLLiMInverter(**{name: value})


def test_integers_of_numpy_are_as_good_as_others(subtests: pytest.Subtests) -> None:
    for name, value in [
        ("n_components", 2),
        ("n_latent", 1),
        ("max_latent", 1),
        ("n_init", 1),
        ("max_iter", 2),
        ("random_state", 0),
    ]:
        with subtests.test(name=name, value=value):
            settings = QUICK | {"n_components": 2, "n_latent": 0, "max_iter": 2}
            found = [GLLiMInverter(**(settings | {name: kind(value)})).fit(make_training()) for kind in (int, np.int64)]
            assert found[0].model_id == found[1].model_id


def test_a_seed_of_numpy_draws_the_same_noise() -> None:
    plain, own, other = (
        GLLiMInverter(n_latent=0, **(QUICK | {"random_state": seed})).fit(make_training(), noise=0.1)
        for seed in (5, np.int64(5), np.int64(6))
    )
    assert plain.model_id == own.model_id
    assert plain.model_id != other.model_id


def fit_arrays(settings: dict[str, Any] | None = None, **arguments: Any) -> GLLiM:
    training = make_training()
    targets = np.stack([training["water"].values, training["dust"].values], axis=1)
    model = GLLiM(**({"n_components": 2, "n_latent": 1, "max_iter": 1, "tol": 0.0} | (settings or {})))
    return model.fit(training["reflectance"].values, targets, **arguments)


def test_the_estimator_refuses(subtests: pytest.Subtests) -> None:
    for settings, parts in [
        ({"n_latent": np.array([1, 2])}, ["n_latent=", "0 or more"]),
        ({"algorithm": np.array(["general"])}, ["algorithm=", "'general'"]),
        ({"sigma": np.array(["iso", "diag"])}, ["sigma=", "'full', 'diag', 'iso'"]),
        ({"tied_gamma": np.array([True, False])}, ["tied_gamma=", "'volume'"]),
        ({"fixed": {"pi": "x"}}, ["fixed pi", "numbers", "'x'"]),
        ({"fixed": {"c": {}}}, ["fixed c", "numbers", "{}"]),
        ({"init": np.zeros(3)}, ["init=", "'kmeans'"]),
        ({"latent_mean": np.nan}, ["latent_mean", "NaN or infinite"]),
        ({"latent_mean": {}}, ["latent_mean={}", "numbers"]),
        ({"latent_mean": [1.0, 2.0]}, ["latent_mean=[1.0, 2.0]", "broadcast to (2, 1)"]),
        ({"latent_covariance": "x"}, ["latent_covariance='x'", "numbers"]),
        ({"latent_covariance": np.inf}, ["latent_covariance", "NaN or infinite"]),
        ({"latent_covariance": -1.0}, ["latent_covariance", "positive definite", "-1"]),
        ({"n_latent": 2, "latent_covariance": 1.5}, ["latent_covariance", "positive definite"]),
        ({"n_latent": 2, "latent_covariance": [[1.0, 0.5], [0.0, 1.0]]}, ["latent_covariance", "symmetric", "0.5"]),
    ]:
        with subtests.test(settings=settings), refuses(ValueError, *parts):
            fit_arrays(settings)


def test_what_samples_have_must_be_numbers(subtests: pytest.Subtests) -> None:
    for name, what in [("sample_weight", "sample weights"), ("responsibilities",) * 2]:
        for value in ["x", {}]:
            with (
                subtests.test(name=name, what=what, value=value),
                refuses(ValueError, what, "an array of numbers", repr(value)),
            ):
                fit_arrays(**{name: value})


def test_progress_of_training_must_be_a_function(subtests: pytest.Subtests) -> None:
    with refuses(TypeError, "progress=True", "a function"):
        fit_arrays(progress=True)
    for value in ["bar", 0]:
        with subtests.test(value=value):
            with refuses(TypeError, f"progress={value!r}", "a function"):
                fit_arrays(progress=value)
            with refuses(TypeError, f"progress={value!r}", "a function"):
                GLLiMInverter(n_latent=0, **QUICK).fit(None, progress=value)  # type: ignore[arg-type]


def test_training_refuses(subtests: pytest.Subtests) -> None:
    for arguments, error, parts in [
        ({"spectra": ["reflectance"]}, ValueError, ["spectra ['reflectance']", "'water'"]),
        ({"parameters": 3}, TypeError, ["parameters=3", "a list of names"]),
        ({"noise": True}, TypeError, ["white is True", "give one number"]),
        ({"noise": "0.1"}, TypeError, ["white is '0.1'", "give one number"]),
    ]:
        with subtests.test(arguments=arguments), refuses(error, *parts):
            GLLiMInverter(n_latent=0, **QUICK).fit(make_training(), **arguments)


def test_inversion_refuses(subtests: pytest.Subtests) -> None:
    for name, value, error, part in [
        *(("tolerance", value, ValueError, "a finite number") for value in (np.inf, np.nan, -1.0, True, "1", None)),
        *(("noise_includes_training", value, ValueError, "True or False") for value in (0, None, [], "no")),
        *(("outputs", value, TypeError, "a list of names") for value in (None, 3, True)),
        ("outputs", ["draws5", "draws7"], ValueError, "the same variables"),
        *(("min_valid_bands", value, ValueError, "from 1 to the 8 bands") for value in (0, 9, 1.5, True, np.nan)),
    ]:
        with subtests.test(name=name, value=value):
            shown = f"outputs {value}" if isinstance(value, list) and name == "outputs" else f"{name}={value!r}"
            with refuses(error, shown, part):
                fitted().invert(make_cube(), **{name: value})


def test_what_is_no_option_of_an_inversion_is_named(subtests: pytest.Subtests) -> None:
    for use in ["evaluate", "pit", "recalibrate"]:
        for name in ["outputs", "sensor", "model"]:
            with (
                subtests.test(use=use, name=name),
                refuses(TypeError, repr(name), "'noise', 'known', 'band_dim', 'tolerance'"),
            ):
                getattr(fitted(), use)(make_training(), **{name: None})


def test_recalibration_refuses(subtests: pytest.Subtests) -> None:
    for minimum in [0, -1, 1.5, np.nan, True, "x", None, [1, 2]]:
        with subtests.test(minimum=minimum), refuses(ValueError, f"minimum={minimum!r}", "1 or more"):
            fitted().recalibrate(make_training(), minimum=minimum)


def test_a_recalibration_that_fails_leaves_the_earlier_one() -> None:
    inverter = GLLiMInverter(n_latent=0, **QUICK).fit(make_training())
    before = inverter.recalibrate(make_training(), minimum=100).model_.recalibration
    with refuses(ValueError, "150 finite pairs", "needs 2000"):
        inverter.recalibrate(make_training())
    assert before is not None
    assert inverter.model_.recalibration is before


def test_writing_maps_refuses_and_writes_nothing(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for lazy in [False, True]:
        for name, value, error, part in [
            *(("resume", value, ValueError, "True or False") for value in (1, "yes", None)),
            *(("progress", value, TypeError, "a function") for value in (3, "bar")),
            *(("compression", value, ValueError, "0 (none) to 9") for value in (True, -1, 10, 1.5, np.nan, "1", None)),
            *(("history", value, TypeError, "a text") for value in (1, ["invert"])),
        ]:
            with subtests.test(lazy=lazy, name=name, value=value):
                maps = xr.Dataset({"lai": (("y", "x"), np.ones((4, 4)))})
                with refuses(error, f"{name}={value!r}", part):
                    save_maps(maps.chunk(y=2) if lazy else maps, tmp_path / "maps.nc", **{name: value})
                assert not list(tmp_path.iterdir())


def test_the_cube_of_a_file_is_asked_for_by_name(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for variable in [3, True, ["reflectance"]]:
        with subtests.test(variable=variable):
            write_emit(tmp_path / "scene.nc")
            with refuses(TypeError, f"variable={variable!r}", "the name"):
                open_cube(tmp_path / "scene.nc", variable=variable)


def test_a_lookup_is_read_from_a_path_written_as_text(tmp_path: Path) -> None:
    write_emit(tmp_path / "scene.nc")
    assert read_lookup(str(tmp_path / "scene.nc")).shape == (4, 7)
    with refuses(FileNotFoundError, "absent.nc", "no such file"):
        read_lookup(str(tmp_path / "absent.nc"))


SENSOR = (np.array([500.0, 600.0]), 80.0)
RESAMPLING = [
    *(("min_coverage", value, ValueError, "from 0 to 1") for value in (-0.1, 1.5, np.nan, True, "x", None)),
    *(("reach", value, ValueError, "above 0") for value in (0, -1, np.nan, np.inf, True, "x", None)),
    *(("good_only", value, ValueError, "True or False") for value in (1, None, "yes")),
]


def test_resampling_refuses(subtests: pytest.Subtests) -> None:
    for name, value, error, part in RESAMPLING:
        for use in [resample, lambda *given, **options: resample_noise(0.1, *given, **options)]:
            with subtests.test(name=name, value=value, use=use), refuses(error, f"{name}={value!r}", part):
                use(make_training(), SENSOR, **{name: value})


def test_resampling_takes_labelled_spectra_alone(subtests: pytest.Subtests) -> None:
    for use in [resample, lambda *given, **options: resample_noise(0.1, *given, **options)]:
        with subtests.test(use=use):
            with refuses(TypeError, "training", "Dataset or DataArray", "ndarray"):
                use(np.ones((2, 8)), SENSOR)
            with refuses(ValueError, "spectra='reflectance'", "leave it out"):
                use(make_training()["reflectance"], SENSOR, spectra="reflectance")


def test_selecting_bands_refuses(subtests: pytest.Subtests) -> None:
    for name, value, error, part in [
        *((name, 1, ValueError, "True or False") for name in ("good_only", "drop")),
        *((name, value, TypeError, "pairs (low, high)") for name in ("exclude", "keep") for value in (3, "1350-1450")),
    ]:
        with subtests.test(name=name, value=value), refuses(error, f"{name}={value!r}", part):
            select_bands(make_cube(), **{name: value})


def test_noise_is_numbers(subtests: pytest.Subtests) -> None:
    for value in [True, "0.1", None, {}, [None]]:
        with subtests.test(value=value), refuses(TypeError, "Noise: relative", "give one number"):
            Noise(relative=value)


NUISANCES: list[tuple[Callable[[Any], object], str, type[Exception], tuple[Any, ...]]] = [
    (Gain, "Gain: std is ", TypeError, (True, "0.1", None)),
    (Gain, "Gain: std is ", ValueError, (-1.0, np.nan, np.inf)),
    (lambda value: Offset(0.1, mean=value), "Offset: mean is ", TypeError, ("0", None, True)),
    (lambda value: Offset(0.1, mean=value), "Offset: mean is ", ValueError, (np.nan, np.inf)),
    (lambda value: Discrepancy(0.1, value), "Discrepancy: length_scale is ", TypeError, ("80", None)),
    (lambda value: Discrepancy(0.1, value), "Discrepancy: length_scale is ", ValueError, (0, np.nan)),
    (lambda value: Discrepancy(0.1, 80.0, kernel=value), "Discrepancy: kernel is ", ValueError, ("rbf", 3, [])),
    (lambda value: ThinCloud(probability=value), "ThinCloud: probability is ", TypeError, ("1", None, True)),
    (lambda value: ThinCloud(probability=value), "ThinCloud: probability is ", ValueError, (1.5, np.nan)),
    (lambda value: Haze(brightness=value), "Haze: brightness is ", TypeError, (0.5, None, "01")),
    (lambda value: Haze(brightness=value), "Haze: brightness is ", ValueError, ((0.5,), (0.5, 0.3), (0.1, np.inf))),
    (lambda value: apply(make_training(), Gain(0.1), seed=value), "seed is ", ValueError, (True, -1, 1.5, "0", None)),
]


def test_nuisances_refuse(subtests: pytest.Subtests) -> None:
    for make, said, error, value in [
        (make, said, error, value) for make, said, error, values in NUISANCES for value in values
    ]:
        with subtests.test(make=make, said=said, value=value), refuses(error, f"{said}{value!r}", "give"):
            make(value)


def test_whether_a_curve_is_relative_or_draws_are_kept_is_yes_or_no() -> None:
    with refuses(ValueError, "relative='no'", "True or False"):
        Discrepancy(0.1, 80.0, relative="no")  # type: ignore[arg-type]
    with refuses(ValueError, "record=1", "True or False"):
        apply(make_training(), Gain(0.1), record=1)  # type: ignore[arg-type]
