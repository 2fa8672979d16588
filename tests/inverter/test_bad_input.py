"""Bad input: each a clear one-line error that names the value and the remedy, before any EM or inversion starts."""

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr

import specinvert.inverter.inverter
from labelled import QUICK, WAVELENGTHS, fitted, make_cube, make_training, refuses
from specinvert import GLLiMInverter
from specinvert.cubes.engine import BlockInverter


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither EM nor the inversion kernel may start; the model to invert with is fitted before."""
    fitted()

    def started(*arguments: Any, **options: Any) -> None:
        raise AssertionError("work has started")

    monkeypatch.setattr("specinvert.gllim.em.training.run_em", started)
    monkeypatch.setattr(BlockInverter, "__call__", started)
    monkeypatch.setattr(BlockInverter, "fill_rows", started)


def fit(training: Any, settings: dict[str, Any] | None = None, **arguments: Any) -> GLLiMInverter:
    return GLLiMInverter(**(QUICK | {"n_latent": 0} | (settings or {}))).fit(training, **arguments)


def with_nan() -> xr.Dataset:
    training = make_training()
    training["reflectance"][3, 2] = training["reflectance"][9, 0] = np.nan
    training["water"][[9, 77]] = np.nan
    return training


def constant_band() -> xr.Dataset:
    training = make_training()
    training["reflectance"][:, 3] = 0.25
    return training


def of(name: str, value: Any) -> xr.Dataset:
    """Training whose parameter ``name`` holds ``value``."""
    return make_training().assign({name: ("sample", np.full(150, value))})


def texts(n: int = 150) -> xr.Dataset:
    return make_training().assign(reflectance=(("sample", "band"), np.full((n, 8), "0.5")))


def written_wavelengths() -> xr.Dataset:
    return make_training().assign_coords(wavelength=("band", [f"{w:g} nm" for w in WAVELENGTHS]))


TRAINING: dict[str, tuple[Callable[[], Any], dict[str, Any], list[str]]] = {
    "parameters not in the Dataset": (make_training, {"parameters": ["water", "lai"]}, ["'lai'", "'dust'"]),
    "a parameter asked for twice": (make_training, {"parameters": ["dust", "dust"]}, ["'dust'", "more than once"]),
    "one name for a list": (make_training, {"parameters": "water"}, ["'water'", "use ['water']"]),
    "no parameters": (
        lambda: make_training()[["reflectance"]],
        {},
        ["no parameters found", "pass parameters=[...]", "parameters=[]"],
    ),
    "no parameters and no latents": (make_training, {"parameters": []}, ["parameters=[]", "n_latent >= 1"]),
    "spectra not in the Dataset": (make_training, {"spectra": "radiance"}, ["'radiance'", "'reflectance'"]),
    "no band dimension": (
        lambda: make_training().drop_vars("wavelength"),
        {},
        ["recognisable band dimension", "band_dim=", "'wavelength'", "'sample', 'band'"],
    ),
    "a band dimension that is none": (make_training, {"spectra": "reflectance", "band_dim": "b"}, ["'b'", "band: 8"]),
    "NaN in training": (
        with_nan,
        {},
        ["3 training samples hold NaN", "2 in the spectra", "2 in 'water'", "missing='drop'"],
    ),
    "NaN in lazy training": (
        lambda: with_nan().chunk(sample=40),
        {},
        ["3 training samples hold NaN", "2 in the spectra", "2 in 'water'", "missing='drop'"],
    ),
    "an unknown way with NaN": (make_training, {"missing": "ignore"}, ["missing='ignore'", "'drop'"]),
    "fewer samples than components": (
        lambda: make_training(2),
        {},
        ["2 samples", "n_components=3", "more samples or fewer components"],
    ),
    "fewer samples after dropping": (
        lambda: with_nan().isel(sample=[3, 4, 9, 77]),
        {"missing": "drop"},
        ["1 sample cannot", "n_components=3"],
    ),
    "a constant parameter": (
        lambda: of("dust", 0.4),
        {},
        ["constant parameter", "'dust'", "always 0.4", "leave it out"],
    ),
    "a constant band": (constant_band, {}, ["constant band", "700 nm", "always 0.25", "leave it out"]),
    "a constant band by its name": (
        lambda: constant_band().drop_vars("wavelength").assign_coords(band=[f"B{i}" for i in range(8)]),
        {"band_dim": "band"},
        ["constant band", "band B3", "leave it out"],
    ),
    "empty training": (lambda: make_training().isel(sample=slice(0)), {}, ["empty", "'sample': 0"]),
    "spectra of text": (texts, {}, ["spectra must be numbers", "0.5", "convert it first"]),
    "a parameter of text": (lambda: of("dust", "low"), {}, ["parameter 'dust' must be numbers", "'low'", "convert"]),
    "a parameter of booleans": (lambda: of("dust", True), {}, ["parameter 'dust' must be numbers", "bool", "convert"]),
    "a parameter of dates": (
        lambda: of("dust", np.datetime64("2024-01-01", "ns")),
        {},
        ["parameter 'dust' must be numbers", "datetime64", "convert"],
    ),
    "wavelengths of text": (written_wavelengths, {}, ["'wavelength'", "'band'", "use numbers"]),
    "wavelengths whose unit contradicts them": (
        lambda: make_training().assign_coords(wavelength=("band", WAVELENGTHS, {"units": "um"})),
        {"spectra": "reflectance"},
        ["'um'", "450 to 1200", "they look like nm", "'units'"],
    ),
    "a parameter of other dimensions": (
        lambda: make_training().assign(soil=("station", np.arange(4.0))),
        {"parameters": ["soil"]},
        ["'soil'", "'station': 4", "'sample': 150"],
    ),
    "weights not in the Dataset": (make_training, {"weights": "frequency"}, ["'frequency'", "'water'"]),
    "weights of text": (make_training, {"weights": ["one"] * 150}, ["weights must be numbers", "'one'"]),
    "negative weights": (
        make_training,
        {"weights": np.full(150, -1.0)},
        ["150 sample weights are negative", "zero or more"],
    ),
    "NaN weights": (make_training, {"weights": np.full(150, np.nan)}, ["150 sample weights", "not finite"]),
    "too few weights": (make_training, {"weights": np.ones(7)}, ["(7,)", "150 samples"]),
    "weights of nothing": (make_training, {"weights": np.zeros(150)}, ["sum to zero", "at least one"]),
    "responsibilities of another size": (
        make_training,
        {"responsibilities": np.ones((7, 1))},
        ["(7, 1)", "(150, K)"],
    ),
    "responsibilities that do not sum to one": (
        make_training,
        {"responsibilities": np.ones((150, 2))},
        ["responsibilities", "sum to one"],
    ),
    "a parameter named as an output": (
        lambda: make_training().rename(dust="water_std"),
        {},
        ["'water_std'", "collides", "rename the parameter"],
    ),
    "a parameter named as an output never asked for": (
        lambda: make_training().rename(dust="log_evidence"),
        {},
        ["'log_evidence'", "collides", "rename the parameter"],
    ),
    "bands in several chunks": (
        lambda: make_training().chunk(sample=50, band=4),
        {},
        ["'band'", "2 chunks", ".chunk({'band': -1})", "rechunk='auto'"],
    ),
}


@pytest.mark.usefixtures("no_work")
def test_training_refuses(subtests: pytest.Subtests) -> None:
    for case in TRAINING:
        with subtests.test(case=case):
            make, arguments, parts = TRAINING[case]
            with refuses(ValueError, *parts):
                fit(make(), **arguments)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("given", [None, make_training()["reflectance"], np.zeros((4, 8)), {"reflectance": 1}])
def test_training_refuses_anything_but_a_dataset(given: Any) -> None:
    with refuses(TypeError, "training", "xarray Dataset", type(given).__name__):
        fit(given)


def test_work_that_should_not_start_would_be_noticed(no_work: None) -> None:
    with pytest.raises(AssertionError, match="work has started"):
        fit(make_training())
    with pytest.raises(AssertionError, match="work has started"):
        fitted().invert(make_cube())


def test_all_data_checks_come_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*arguments: Any, **options: Any) -> None:
        raise AssertionError("training has started")

    monkeypatch.setattr(specinvert.inverter.fit, "train", started)
    for case in ("parameters not in the Dataset", "NaN in training", "spectra of text", "empty training"):
        make, arguments, parts = TRAINING[case]
        with refuses(ValueError, *parts):
            fit(make(), **arguments)


def test_settings_are_checked_when_given(subtests: pytest.Subtests) -> None:
    for settings, parts in [
        ({"n_components": 0}, ["n_components=0", "1 or more"]),
        ({"n_components": "5"}, ["n_components='5'", "an integer"]),
        ({"n_components": 2.5}, ["n_components=2.5", "an integer"]),
        ({"n_latent": -1}, ["n_latent=-1", "0 or more"]),
        ({"n_latent": "aic"}, ["n_latent='aic'", "'bic'"]),
        ({"sigma": "round"}, ["sigma='round'", "'full', 'diag', 'iso'"]),
        ({"gamma": "block"}, ["gamma='block'", "'full', 'diag', 'iso'"]),
        ({"tied_sigma": "yes"}, ["tied_sigma='yes'", "True or False"]),
        ({"standardize": 1}, ["standardize=1", "True or False"]),
        ({"init": "random"}, ["init='random'", "'kmeans'", "'gmm'"]),
        ({"max_iter": 0}, ["max_iter=0", "1 or more"]),
        ({"n_init": "two"}, ["n_init='two'", "an integer"]),
        ({"tol": "small"}, ["tol='small'", "zero or more"]),
        ({"tol": -1e-3}, ["tol=-0.001", "zero or more"]),
        ({"reg_covar": np.nan}, ["reg_covar=nan", "zero or more"]),
    ]:
        with subtests.test(settings=settings), refuses(ValueError, *parts):
            GLLiMInverter(**settings)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"n_latent": 8}, ["n_latent=8", "8 bands", "sigma='full'"]),
        ({"n_latent": "bic", "max_latent": [0, 8]}, ["max_latent=[0, 8]", "0 to 7"]),
        ({"n_latent": "bic", "max_latent": "three"}, ["max_latent='three'", "an integer"]),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(settings: dict[str, Any], parts: list[str]) -> None:
    with refuses(ValueError, *parts):
        fit(make_training(), settings)


def test_a_value_that_is_not_there_yet_is_refused() -> None:
    with pytest.raises(TypeError, match="noise_model"):
        GLLiMInverter(noise_model="student")  # type: ignore[call-arg]


def in_reach(dim: str, size: int) -> xr.DataArray:
    return make_cube().isel({dim: slice(size)})


CUBES: dict[str, tuple[Callable[[], Any], dict[str, Any], list[str]]] = {
    "bands that do not match": (
        lambda: make_cube().assign_coords(wavelength=("band", WAVELENGTHS + 5.0, {"units": "nm"})),
        {},
        ["8 of 8 bands", "450.00 nm (nearest 455.00)", "within 1 nm", "sensor=cube", "tolerance"],
    ),
    "a band missing": (lambda: make_cube().isel(band=slice(1, None)), {}, ["1 of 8 bands", "450.00 nm", "sensor=cube"]),
    "no wavelengths": (
        lambda: make_cube().drop_vars("wavelength"),
        {"band_dim": "band"},
        ["'wavelength'", "'band'", "training"],
    ),
    "no recognisable band dimension": (
        lambda: make_cube().drop_vars("wavelength"),
        {},
        ["no dimension carries wavelengths", "y: 5, x: 6, band: 8", "band_dim=", "'wavelength'"],
    ),
    "a Dataset without a band dimension": (
        lambda: make_cube().rename("radiance").drop_vars("wavelength").to_dataset(),
        {},
        ["recognisable band dimension", "'radiance'", "'wavelength'"],
    ),
    "a band dimension that is none": (make_cube, {"band_dim": "z"}, ["band_dim='z'", "y: 5, x: 6, band: 8"]),
    "units that contradict": (
        lambda: (100.0 * make_cube()).assign_attrs(units="%"),
        {},
        ["the cube is in '%'", "'1' is expected", "divide by 100", "'units'"],
    ),
    "another quantity": (
        lambda: make_cube().assign_attrs(units="W m-2 sr-1 um-1"),
        {},
        ["'W m-2 sr-1 um-1'", "'1' is expected", "convert it", "'units'"],
    ),
    "wavelength units that contradict": (
        lambda: make_cube().assign_coords(wavelength=("band", WAVELENGTHS / 1000.0, {"units": "nm"})),
        {},
        ["'nm'", "0.45 to 1.2", "they look like um", "'units'"],
    ),
    "wavelengths of text": (
        lambda: make_cube().assign_coords(wavelength=("band", WAVELENGTHS.astype(str))),
        {},
        ["'wavelength'", "use numbers"],
    ),
    "bands in several chunks": (
        lambda: make_cube().chunk(y=5, x=6, band=1),
        {},
        ["'band'", "8 chunks", ".chunk({'band': -1})", "GB a chunk", "rechunk='auto'"],
    ),
    "no rows": (lambda: in_reach("y", 0), {}, ["the cube is empty", "'y': 0", "at least one pixel"]),
    "no bands": (lambda: in_reach("band", 0), {}, ["the cube is empty", "'band': 0"]),
    "a lazy cube without rows": (
        lambda: make_cube().chunk().isel(y=slice(0)),
        {},
        ["the cube is empty", "'y': 0", "at least one pixel"],
    ),
    "text": (lambda: make_cube().astype(str), {}, ["the cube must be numbers", "<U", "convert it first"]),
    "objects": (lambda: make_cube().astype(object), {}, ["the cube must be numbers", "object", "convert it first"]),
    "complex numbers": (lambda: make_cube() * 1j, {}, ["the cube must be numbers", "complex128"]),
    "lazy text": (
        lambda: make_cube().copy(data=da.full((5, 6, 8), "a", chunks=2)),
        {},
        ["the cube must be numbers", "<U1", "convert it first"],
    ),
    "packed integers": (
        lambda: (1e4 * make_cube()).astype("i2").assign_attrs(scale_factor=1e-4),
        {},
        ["packed", "scale_factor=0.0001", "open_cube", "mask_and_scale=True"],
    ),
    "nodata of text": (
        lambda: make_cube().assign_attrs(nodata="none"),
        {},
        ["nodata='none'", "not a number", "delete it"],
    ),
    "a tolerance of text": (make_cube, {"tolerance": "1 nm"}, ["tolerance='1 nm'", "number of nanometres"]),
    "a negative tolerance": (make_cube, {"tolerance": -1.0}, ["tolerance=-1.0", "0 or more"]),
    "an unknown output": (make_cube, {"outputs": ("mean", "middle")}, ["'middle'", "'median', 'std'"]),
    "no output": (make_cube, {"outputs": ()}, ["no outputs", "'median', 'std'"]),
    "latents of a model without": (make_cube, {"outputs": ("latent",)}, ["'latent'", "n_latent >= 1"]),
}


@pytest.mark.usefixtures("no_work")
def test_inversion_refuses(subtests: pytest.Subtests) -> None:
    for case in CUBES:
        with subtests.test(case=case):
            make, arguments, parts = CUBES[case]
            with refuses(ValueError, *parts):
                fitted().invert(make(), **arguments)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("given", [None, np.zeros((2, 8)), [1.0, 2.0], "cube.nc"])
def test_inversion_refuses_anything_but_labelled_data(given: Any) -> None:
    with refuses(TypeError, "DataArray or Dataset", type(given).__name__):
        fitted().invert(given)
    with refuses(TypeError, "DataArray or Dataset", type(given).__name__):
        fitted().posterior(given)


@pytest.mark.parametrize(
    "use",
    [
        lambda inverter: inverter.invert(make_cube()),
        lambda inverter: inverter.posterior(make_cube()),
        lambda inverter: inverter.evaluate(make_training()),
        lambda inverter: inverter.simulate(make_training()),
        lambda inverter: inverter.to_netcdf("model.nc"),
        lambda inverter: inverter.model_id,
        lambda inverter: make_cube().gllim.invert(inverter),
    ],
)
def test_an_unfitted_inverter_says_so(use: Callable[[GLLiMInverter], Any]) -> None:
    with refuses(ValueError, "not fitted", "fit(training)", "load_inverter(path)"):
        use(GLLiMInverter())


@pytest.mark.parametrize("name", ["parameters_", "bic_", "bics_", "n_iter_", "log_likelihoods_", "converged_"])
def test_fitted_attributes_of_an_unfitted_inverter_are_absent(name: str) -> None:
    inverter = GLLiMInverter()
    assert not hasattr(inverter, name)
    with refuses(AttributeError, repr(name), "not fitted", "fit"):
        getattr(inverter, name)
    with refuses(AttributeError, "'parameters'"):
        inverter.parameters  # noqa: B018


def test_components_that_all_degenerate_are_an_error_that_says_what_to_change() -> None:
    training = make_training(12)
    with refuses(ValueError, "all 12 components degenerated", "use fewer components"):
        GLLiMInverter(12, n_latent=0, tol=0.0, max_iter=2, random_state=0).fit(training)


def test_wavelengths_without_a_unit_that_tell_nothing_are_refused() -> None:
    training = make_training().assign_coords(wavelength=("band", WAVELENGTHS * 1e-1))
    with refuses(ValueError, "'wavelength'", "no units", "nm, um or m"):
        fit(training)
