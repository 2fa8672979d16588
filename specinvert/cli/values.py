"""Values of options that are more than a number or a name: ranges, transforms, nuisances, noise, sensors, entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from ..nuisance import Nuisance


_RANGE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*-\s*(\d+(?:\.\d*)?)\s*")


def number(text: str) -> float | None:
    """The number that a text is, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def read_ranges(option: str, text: str | None) -> list[tuple[float, float]] | None:
    """Ranges in nm of ``"1350-1450,1800-1950"``; ValueError where one is malformed."""
    if text is None:
        return None
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{option} {text!r}: {part!r} is no range, write low-high in nm, as 1350-1450,1800-1950")
        low, high = float(match[1]), float(match[2])
        if low >= high:
            raise ValueError(f"{option} {text!r}: {part!r} is empty, write the lower end first, as {high:g}-{low:g}")
        ranges.append((low, high))
    return ranges


def narrow(data: Any, bands: str | None, exclude: str | None, **options: Any) -> Any:
    """The data with the bands that ``--bands`` and ``--exclude`` leave; ``options`` of ``select_bands``."""
    from ..cubes import select_bands

    keep, out = read_ranges("--bands", bands), read_ranges("--exclude", exclude)
    if keep is None and out is None and options.get("negative", "keep") == "keep":
        return data
    return select_bands(data, keep=keep, exclude=out or (), **options)


def read_transforms(items: Iterable[str]) -> dict[Any, Any] | None:
    """Transforms of ``lai=sqrt``, ``ice=logit:0:1``, ``a+b+c=ilr``, or ``none``, as ``GLLiMInverter`` takes them."""
    transforms: dict[Any, Any] = {}
    items = list(items)
    if items == ["none"]:
        return {}
    for item in items:
        name, equals, value = item.rpartition("=")
        if not equals or not name or not value:
            raise ValueError(f"--transform {item!r}: write NAME=TRANSFORM, as in lai=sqrt, ice=logit:0:1, a+b+c=ilr")
        parts = tuple(name.split("+"))
        key: Any = parts if len(parts) > 1 else name
        if key in transforms:
            raise ValueError(f"--transform: {name!r} has two transforms, keep one")
        kind, *bounds = value.split(":")
        numbers = [number(bound) for bound in bounds]
        if None in numbers:
            raise ValueError(f"--transform {item!r}: bounds are numbers, as in ice=logit:0:1")
        transforms[key] = (kind, *numbers) if numbers else kind
    return transforms or None


def nuisance_kinds() -> dict[str, type[Nuisance]]:
    """Nuisance models by their name on the command line, such as ``thin_cloud``."""
    from .. import nuisance

    kinds = [getattr(nuisance, name) for name in nuisance.__all__ if name not in ("Nuisance", "Chain")]
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, nuisance.Nuisance)]
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind for kind in models}


def read_nuisances(items: Iterable[str]) -> Any:
    """Nuisances of ``gain=0.02``, ``thin_cloud=0.5,damping=0.7``, ``background=soil.nc,fraction=0:0.3``, in a chain.

    None without any. The value after the name is the model's first argument, ranges are ``low:high``.
    """
    import inspect

    from ..nuisance import Chain

    kinds = nuisance_kinds()
    steps = []
    for item in items:
        first, *rest = item.split(",")
        name, equals, value = first.partition("=")
        if name not in kinds:
            raise ValueError(f"--nuisance {item!r}: no nuisance is called {name!r}; there are {', '.join(kinds)}")
        accepted = list(inspect.signature(kinds[name]).parameters)
        given = {accepted[0]: value} if equals else {}
        for part in rest:
            key, equals, value = part.partition("=")
            if not equals or key not in accepted or key in given:
                raise ValueError(f"--nuisance {item!r}: {part!r} must be KEY=VALUE, KEY one of {', '.join(accepted)}")
            given[key] = value
        arguments = {key: _nuisance_value(name, key, value) for key, value in given.items()}
        needed = [p.name for p in inspect.signature(kinds[name]).parameters.values() if p.default is p.empty]
        if missing := [key for key in needed if key not in arguments]:
            example = f"{name}=VALUE" if missing[0] == accepted[0] else f"{item},{missing[0]}=VALUE"
            raise ValueError(f"--nuisance {item!r}: {missing[0]} is missing, write {example}")
        try:
            steps.append(kinds[name](**arguments))
        except TypeError as error:
            text = [f"{key}={value}" for key, value in given.items() if number(value) is None]
            raise ValueError(f"--nuisance {item!r}: {', '.join(text) or error} is no number") from error
    return Chain(steps) if steps else None


def _nuisance_value(name: str, key: str, text: str) -> Any:
    if name == "background" and key == "spectra":
        from ..cubes import find_spectra
        from ..io.reading import open_dataset

        return find_spectra(open_dataset(text), None, None)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    numbers = [number(part) for part in text.split(":")]
    if None in numbers:
        return text
    return numbers[0] if len(numbers) == 1 else tuple(numbers)


def read_known(items: Iterable[str]) -> dict[str, Any] | None:
    """Known parameters of ``NAME=VALUE``, ``NAME=LOW:HIGH`` or ``NAME=FILE``, as ``invert(known=)`` takes them."""
    known: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name or not text:
            raise ValueError(f"--known {item!r}: write NAME=VALUE, NAME=LOW:HIGH or NAME=FILE")
        if name in known:
            raise ValueError(f"--known: {name!r} is given twice, keep one")
        ends = [number(part) for part in text.split(":")]
        if len(ends) <= 2 and None not in ends:
            known[name] = ends[0] if len(ends) == 1 else tuple(ends)
        elif Path(text).exists():
            known[name] = _only_variable(text, name)
        else:
            raise ValueError(f"--known {item!r}: {text!r} is neither a number, nor LOW:HIGH, nor a file that exists")
    return known or None


def picked(data: Any, chosen: Iterable[str], all_of_them: bool = True) -> Any:
    """The data at the entries that ``--select`` names; what it names and the data lack may be an error."""
    from ..figures import pick

    entries: dict[str, str] = {}
    for item in chosen:
        dim, equals, text = (part.strip() for part in item.partition("="))
        if not dim or not equals or not text:
            raise ValueError(f"--select: {item!r} must be DIM=VALUE, as time=2020-06-01 or depth=0.5")
        if dim in entries:
            raise ValueError(f"--select: {dim!r} is given twice, keep one")
        entries[dim] = text
    try:
        return pick(data, entries, all_of_them)
    except ValueError as error:
        raise ValueError(f"--select: {error}") from error


def each_array(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with everything labelled in it changed: in the values of mappings, and in tuples."""
    if hasattr(value, "isel"):
        return change(value)
    if isinstance(value, Mapping):
        return {name: each_array(part, change) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(each_array(part, change) for part in value)
    return value


def read_noise(text: str | None) -> Any:
    """Standard deviations that ``--noise`` gives: a number, one a band (D,) or a DataArray, with wavelengths if known.

    A .csv, .tsv or .txt file has one column of numbers, or two, the wavelengths first or named so; other files are
    netCDF with one variable, or one called ``noise``.
    """
    if text is None:
        return None
    from ..io.reading import SUFFIXES

    value = number(text)
    if value is not None:
        return value
    path = Path(text)
    if not text or not path.exists():
        raise ValueError(f"--noise {text!r} is neither a number nor a file that exists")
    if path.suffix.lower() in SUFFIXES:
        return _noise_table(path)
    found = _found(text)
    return _only_variable(text, "noise") if found is None else found


def noise_of(noise: Any, data: xr.DataArray | xr.Dataset, spectra: str | None, band_dim: str | None) -> Any:
    """The noise with its band dimension named as that of the data."""
    if not _has_dims(noise):
        return noise
    import xarray as xr

    from ..cubes import find_band_dim, find_spectra, wavelength_coordinate

    dim = find_band_dim(find_spectra(data, spectra, band_dim) if isinstance(data, xr.Dataset) else data, band_dim)
    if dim in noise.dims:
        return noise
    if noise.ndim == 1 and wavelength_coordinate(noise, noise.dims[0]) is None:
        return noise.values
    old = find_band_dim(noise)
    return noise.swap_dims({old: dim}) if dim in noise.coords else noise.rename({old: dim})


def noise_by_band(noise: Any, data: xr.Dataset, spectra: str | None, band_dim: str | None) -> Any:
    """The noise as one number a band of the data, (D,), matched by wavelength; numbers as they are."""
    if not _has_dims(noise):
        return noise
    from ..cubes import describe_bands, find_spectra, match_bands

    named = noise_of(noise, data, spectra, band_dim)
    if not _has_dims(named):
        return named
    if named.ndim != 1:
        raise ValueError(f"the noise of training has dimensions {named.dims}: give one standard deviation a band")
    dim = str(named.dims[0])
    wanted = describe_bands(find_spectra(data, spectra, band_dim), dim)
    return named.values[match_bands(wanted, describe_bands(named, dim))]


def open_sensor(path: Path) -> Any:
    """A sensor as ``resample`` takes it.

    From a cube or a table of spectra, a netCDF file of wavelengths and widths or of tabulated responses, or a .csv,
    .tsv or .txt with columns wavelength and fwhm, or with these two and no names.
    """
    from ..cubes import RESPONSE_DIM, is_fwhm_name, is_wavelength_name
    from ..io.reading import SUFFIXES, choose_reader, open_cube, open_group, read_columns

    file, reader = choose_reader(path)
    if reader.name == "csv" or path.suffix.lower() in SUFFIXES:
        table = read_columns(path)
        if table.columns.dtype.kind in "iu" and table.shape[1] != 2:
            raise ValueError(f"{path}: a sensor without names of columns is two, wavelengths and then widths (FWHM)")
        if table.columns.dtype.kind in "iu":
            table.columns = ["wavelength", "fwhm"]
        if any(is_wavelength_name(name) or is_fwhm_name(name) for name in table.columns):
            return _sensor_table(table, path)
    if reader.name == "netcdf":
        data = open_group(file)
        if RESPONSE_DIM in data.dims or all(array.ndim < 2 for array in data.data_vars.values()):
            return data
    return open_cube(file)


def centres_and_widths(sensor: Any) -> tuple[Any, Any] | None:
    """Of the bands of a sensor in nm, (D,) each, widths None where responses are tabulated; None without a sensor."""
    from ..cubes import read_sensor

    if sensor is None:
        return None
    target = read_sensor(sensor)
    return target.centre, getattr(target.response, "fwhm", None)


def _at_bands(training: xr.Dataset, sensor: Any, spectra: str | None, band_dim: str | None) -> bool:
    """Whether the training spectra are at the bands of the sensor already, in their order, all of these good."""
    import numpy as np

    from ..cubes import describe_bands, find_band_dim, find_spectra, read_sensor

    array = find_spectra(training, spectra, band_dim)
    offered = describe_bands(array, find_band_dim(array, band_dim)).wavelength
    wanted = read_sensor(sensor, good_only=True).centre
    return offered is not None and offered.shape == wanted.shape and np.allclose(offered, wanted, rtol=0.0, atol=1e-6)


def _sensor_table(table: pd.DataFrame, path: Path) -> xr.Dataset:
    import xarray as xr

    from ..cubes import is_fwhm_name, is_wavelength_name, listed

    columns_of = {
        "wavelength": [c for c in table.columns if is_wavelength_name(c)],
        "fwhm": [c for c in table.columns if is_fwhm_name(c)],
    }
    for wanted, columns in columns_of.items():
        if len(columns) != 1:
            has = listed(table.columns)
            raise ValueError(f"{path}: the table of a sensor needs one column {wanted!r}, it has {has}")
    coords = {}
    for wanted, columns in columns_of.items():
        if table[columns[0]].dtype.kind not in "iuf":
            raise ValueError(f"{path}: column {columns[0]!r} of the sensor must be numbers; correct it")
        coords[wanted] = ("band", table[columns[0]].to_numpy(dtype=float))
    return xr.Dataset(coords=coords)


def _noise_table(path: Path) -> Any:
    import xarray as xr

    from ..cubes import is_wavelength_name
    from ..io.reading import read_columns

    table = read_columns(path)
    axis = [name for name in table.columns if is_wavelength_name(name)]
    if not axis and table.shape[1] == 2 and table.columns.dtype.kind in "iu":
        axis = [table.columns[0]]
    rest = [name for name in table.columns if name not in axis]
    if len(axis) > 1 or len(rest) != 1 or not all(kind.kind in "iuf" for kind in table.dtypes):
        raise ValueError(f"{path}: noise is one column of numbers, or two of wavelengths and standard deviations")
    values = table[rest[0]].to_numpy(dtype=float)
    if not axis:
        return values
    name = str(axis[0]) if isinstance(axis[0], str) else "wavelength"
    return xr.DataArray(values, dims="band", coords={name: ("band", table[axis[0]].to_numpy(dtype=float))})


def _only_variable(path: str, name: str) -> xr.DataArray:
    """The variable of this name in a file, or its only one."""
    from ..cubes import listed
    from ..io.reading import open_dataset

    data = open_dataset(path)
    if name not in data.data_vars and len(data.data_vars) != 1:
        raise ValueError(f"{path}: no variable {name!r} among several; it has {listed(data.data_vars)}")
    array = data[name if name in data.data_vars else next(iter(data.data_vars))]
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{path}: {name!r} must be numbers, {array.name!r} is {array.dtype}")
    return array


def _found(path: str) -> xr.Dataset | None:
    """What ``adapt`` found, where the file holds that."""
    from ..cubes import DISCREPANCY
    from ..io.reading import open_dataset

    with open_dataset(path) as data:
        return data.load() if DISCREPANCY in data else None


def _has_dims(noise: Any) -> bool:
    """Whether this is a DataArray of more than one number."""
    return getattr(noise, "ndim", 0) > 0 and hasattr(noise, "dims")


def to_sensor(
    training: xr.Dataset, sensor: Any, bands: str | None, exclude: str | None, good_only: bool = True, **options: Any
) -> xr.Dataset:
    """Spectra averaged to those bands of the sensor that the ranges leave, in memory or lazily.

    ``options`` are those of :func:`specinvert.resample`.
    """
    import xarray as xr

    from ..cubes import resample

    table = isinstance(sensor, xr.Dataset) and "fwhm" not in sensor.variables
    if not table:
        centres = sensor.set_coords("fwhm")["fwhm"] if isinstance(sensor, xr.Dataset) else sensor
        sensor = narrow(centres, bands, exclude, good_only=good_only)
    coarse = resample(training, sensor, good_only=good_only, rechunk="auto", **options)
    if table:
        names = {name: options.get(name) for name in ("spectra", "band_dim")}
        coarse = narrow(coarse, bands, exclude, good_only=False, **names)
    return coarse


@dataclass(frozen=True)
class Preparation:
    """The options of what is trained on, read and checked, ready for the training set."""

    spectra: str | None
    parameters: list[str] | None
    band_dim: str | None
    weights: str | None
    drop_missing: bool
    sensor: Any
    bands: str | None
    exclude: str | None
    noise: Any
    nuisance: Any

    @classmethod
    def of(cls, options: dict[str, Any]) -> Preparation:
        """Take these options out of those of a command, read files and check what needs no training set."""
        given = {one.name: options.pop(one.name) for one in fields(cls)}
        for name in ("bands", "exclude"):
            read_ranges(f"--{name}", given[name])
        sensor = None if given["sensor"] is None else open_sensor(given["sensor"])
        noise, nuisance = read_noise(given["noise"]), read_nuisances(given["nuisance"])
        return cls(**(given | {"sensor": sensor, "noise": noise, "nuisance": nuisance}))

    @property
    def reading(self) -> dict[str, Any]:
        """How ``fit`` and ``select_model`` read the training set."""
        missing = "drop" if self.drop_missing else "raise"
        names = {name: getattr(self, name) for name in ("spectra", "parameters", "band_dim", "weights")}
        return {**names, "missing": missing, "rechunk": "auto"}

    def apply(self, training: xr.Dataset) -> tuple[xr.Dataset, Any]:
        """The training set with the bands to use, and the noise for ``fit``: None, numbers or a nuisance."""
        from ..nuisance import Noise

        names: dict[str, Any] = {"spectra": self.spectra, "band_dim": self.band_dim}
        if self.sensor is None or _at_bands(training, self.sensor, **names):
            training = narrow(training, self.bands, self.exclude, good_only=False, **names)
        else:
            training = to_sensor(training, self.sensor, self.bands, self.exclude, **names)
        noise = noise_by_band(self.noise, training, self.spectra, self.band_dim)
        if self.nuisance is None:
            return training, noise
        return training, self.nuisance if noise is None else self.nuisance | Noise(white=noise)
