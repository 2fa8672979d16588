"""Reads cubes and tables of spectra from MATLAB files, by the names and shapes of their variables.

Versions 4 to 7.2 are read through SciPy, 7.3, which is HDF5, through h5py. Only arrays of numbers and text are read,
and those in a struct that holds an ENVI header: functions and objects in a file are never looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any
from zlib import error as ZlibError

import numpy as np
import xarray as xr

from ....cubes import describe_bands, is_fwhm_name, is_good_name, is_wavelength_name, is_wavelength_units_key
from ..band_tags import declared_scale, is_scale_name
from ..convention import (
    STORED,
    Chunks,
    band_coords,
    chunk_cube,
    file_variable,
    stored_in_words,
    tell,
    with_bands,
    without_fills,
)
from ..files import clear_errors, first_bytes, open_hdf5, text

_MAGIC = (b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file")
_HDF5 = b"MATLAB 7.3 MAT-file"
_KIND = "MATLAB 7.3 file"
_NUMBERS = frozenset(
    {"double", "single", "logical", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
)
_ROWS = frozenset({"lines", "line", "nrow", "nrows", "rows", "row", "height", "h"})
_COLUMNS = frozenset({"cols", "col", "ncol", "ncols", "columns", "samples", "width", "w"})
_MANY_TIMES = 10


@dataclass(frozen=True)
class _Variable:
    """A variable of the file, or `struct.field`: its shape is MATLAB's, its kind that of MATLAB's classes."""

    name: str
    shape: tuple[int, ...]
    kind: str

    @property
    def field(self) -> str:
        """The name without that of the struct."""
        return self.name.rpartition(".")[2]

    @property
    def in_struct(self) -> bool:
        return "." in self.name

    @property
    def is_vector(self) -> bool:
        return self.kind in _NUMBERS and len(self.shape) == 2 and 1 in self.shape and max(self.shape) > 1

    @property
    def is_array(self) -> bool:
        return (
            not self.in_struct
            and self.kind in _NUMBERS
            and len(self.shape) in (2, 3)
            and sum(size > 1 for size in self.shape) > 1
        )

    def __str__(self) -> str:
        return f"{self.name} {self.shape}{'' if self.kind in _NUMBERS else f' {self.kind}'}"


@dataclass(frozen=True)
class _Bands:
    """Vectors that describe the bands, by what they hold; `unit` None where no variable tells."""

    vectors: dict[str, _Variable]
    unit: str | None

    def __str__(self) -> str:
        return _listed(list(self.vectors.values()))

    @property
    def size(self) -> int | None:
        return max(next(iter(self.vectors.values())).shape) if self.vectors else None


def matches(path: Path, head: bytes) -> bool:
    """Whether the first bytes or the name are those of a MATLAB file."""
    return bool(head) and (head.startswith(_MAGIC) or path.suffix.lower() == ".mat")


def read(path: Path, chunks: Chunks = "auto", variable: str | None = None) -> xr.DataArray:
    """Open a cube as (y, x, wavelength) or a table of spectra as (sample, wavelength).

    Wavelengths, widths and a list of bad bands are vectors of the usual names (`wavelength`, `wl`, `fwhm`, `bbl`),
    and the axis as long as they are holds the bands. Without them the bands are the third axis of a cube, and keep
    the dimension `band`. Where a struct holds an ENVI header with a unit, as readers of ENVI files for MATLAB
    return it, wavelengths, widths and unit are those of the header. Pixels in one axis, beside variables of the
    numbers of rows and columns (`lines`, `cols`, `nRow`, `nCol`), become an image, column by column as MATLAB
    counts. A unit of wavelengths that no variable tells (`wavelength_units`) is left out. Of several arrays that
    could be the cube, one with ten times the bands of every other, such as spectra beside abundances, is taken, and
    `comment` says so.

    Values stay as stored but for a scale that a number declares (`scale_factor`, `scale`). Arrays of files before 7.3,
    and pixels in one axis, are read whole before they are cut into blocks.

    Parameters
    ----------
    variable : name of the cube or table; None for the only array that fits the wavelengths, or has by far the most
        bands.

    Raises
    ------
    PermissionError : the file may not be read.
    ValueError : the file is damaged; `variable` is missing or no array of numbers; none or several arrays could be
        the cube; no axis is as long as the wavelengths, or it is unknown which axis holds the bands.
    """
    variables = _variables(path)
    bands = _band_vectors(path, variables)
    image = _image_shape(path, variables)
    chosen, comment = _choose(path, variables, bands, image, variable)
    whole = "wavelength" if "wavelength" in bands.vectors else "band"
    raw = _array(path, chosen, _band_axis(path, chosen, bands, image), image, whole)
    cube = without_fills(chunk_cube(raw, chunks, whole=whole, path=str(path)), path)
    if whole == "wavelength":
        vectors = {what: np.ravel(_load(path, vector)) for what, vector in bands.vectors.items()}
        cube = with_bands(
            *(cube, vectors["wavelength"].astype(np.float64), bands.unit, path),
            fwhm=vectors.get("fwhm"),
            good=vectors.get("good"),
        )
    elif bands.vectors:
        cube = cube.assign_coords(band_coords("band", good=np.ravel(_load(path, bands.vectors["good"]))))
    scale = _scale(path, variables)
    cube = cube if scale is None else cube * np.asarray(scale, cube.dtype)
    cube.attrs = {} if comment is None else {"comment": comment}
    if comment is not None:
        tell(path, comment)
    cube.encoding = {"source": str(path), STORED: stored_in_words(raw.dtype, [scale or 1.0], [0.0], [])}
    return cube


def _is_hdf5(path: Path) -> bool:
    return first_bytes(path, len(_HDF5)) == _HDF5


def _variables(path: Path) -> list[_Variable]:
    if _is_hdf5(path):
        with open_hdf5(path, _KIND) as file:
            held = [_of_hdf5(name, item) for name, item in file.items() if not name.startswith("#")]
            for name, item in file.items():
                if _class_of(item) == "struct" and hasattr(item, "items"):
                    held += [_of_hdf5(f"{name}.{field}", value) for field, value in item.items()]
        return [variable for variable in held if variable is not None]
    variables = [_Variable(*listed) for listed in _scipy(path, "whosmat")]
    if not any(variable.is_array for variable in variables):
        return variables
    for struct in [v for v in variables if v.kind == "struct" and prod(v.shape) == 1]:
        held = _scipy(path, "loadmat", variable_names=[struct.name])[struct.name]
        for field in held.dtype.names or ():
            value = held[field].flat[0]
            kind = {"U": "char"}.get(value.dtype.kind, value.dtype.name.replace("float64", "double"))
            variables.append(_Variable(f"{struct.name}.{field}", value.shape, kind))
    return variables


def _of_hdf5(name: str, item: Any) -> _Variable | None:
    shape = getattr(item, "shape", None)
    return None if shape is None else _Variable(name, shape[::-1], _class_of(item))


def _class_of(item: Any) -> str:
    return text(item.attrs.get("MATLAB_class", "unknown"))


def _load(path: Path, variable: _Variable) -> np.ndarray:
    if _is_hdf5(path):
        with open_hdf5(path, _KIND) as file:
            return np.asarray(file[variable.name.replace(".", "/")][...]).T
    top = variable.name.partition(".")[0]
    values = _scipy(path, "loadmat", variable_names=[top])[top]
    return np.asarray(values[variable.field].flat[0] if variable.in_struct else values)


def _scipy(path: Path, function: str, **options: Any) -> Any:
    import scipy.io
    from scipy.io.matlab import MatReadError

    kinds = (OSError, ValueError, TypeError, LookupError, NotImplementedError, ZlibError, MatReadError)
    told = "not a readable MATLAB file, damaged or truncated ({})"
    with clear_errors(path, told, *kinds), path.open("rb") as file:
        return getattr(scipy.io, function)(file, **options)


def _band_vectors(path: Path, variables: list[_Variable]) -> _Bands:
    """Vectors of the bands, one of each kind, all of one length; those of a header where it fits and tells the unit."""
    own = _vectors(path, [variable for variable in variables if not variable.in_struct])
    header = _vectors(path, [variable for variable in variables if variable.in_struct])
    if not _is_header(path, own, header, variables):
        return own
    return replace(header, vectors=header.vectors | {k: v for k, v in own.vectors.items() if k == "good"})


def _is_header(path: Path, own: _Bands, header: _Bands, variables: list[_Variable]) -> bool:
    """Whether a struct tells wavelengths, and their unit, of as many bands as an array or the file's own list has.

    Raises ValueError where it contradicts the file's own wavelengths.
    """
    if "wavelength" not in header.vectors or header.unit is None:
        return False
    sizes = {own.size} if own.vectors else {size for v in variables if v.is_array for size in v.shape}
    if header.size not in sizes:
        return False
    if "wavelength" in own.vectors:
        pair = (own.vectors["wavelength"], header.vectors["wavelength"])
        first, second = (np.ravel(_load(path, vector)).astype(np.float64) for vector in pair)
        if not np.allclose(second * first[0], first * second[0], rtol=1e-3):
            raise ValueError(f"{path}: {_listed(list(pair))} hold different wavelengths; remove one of them")
    return True


def _vectors(path: Path, variables: list[_Variable]) -> _Bands:
    """What these variables tell of the bands."""
    vectors: dict[str, _Variable] = {}
    for what, wanted in (("wavelength", is_wavelength_name), ("fwhm", is_fwhm_name), ("good", is_good_name)):
        named = [variable for variable in variables if variable.is_vector and wanted(variable.field)]
        if len(named) > 1:
            raise ValueError(f"{path}: several variables could hold {what}: {_listed(named)}; remove all but one")
        if named:
            vectors[what] = named[0]
    if len({max(vector.shape) for vector in vectors.values()}) > 1:
        raise ValueError(f"{path}: {_listed(list(vectors.values()))} describe different numbers of bands; correct them")
    if "wavelength" not in vectors:
        return _Bands({what: vector for what, vector in vectors.items() if what == "good"}, None)
    units = [variable for variable in variables if variable.kind == "char" and is_wavelength_units_key(variable.field)]
    return _Bands(vectors, _load_text(path, units[0]) if units else _unit_of_name(path, vectors["wavelength"]))


def _unit_of_name(path: Path, vector: _Variable) -> str | None:
    """The unit that a name such as wavelength_nm tells."""
    values = np.ravel(_load(path, vector)).astype(np.float64)
    named = xr.DataArray(np.zeros(values.size), dims="band", coords={vector.field: ("band", values)})
    with clear_errors(path, "{}", ValueError):
        bands = describe_bands(named, "band")
    return None if bands.guessed else bands.unit


def _load_text(path: Path, variable: _Variable) -> str:
    values = _load(path, variable)
    return "".join(map(chr, values.ravel())) if values.dtype.kind in "iu" else "".join(map(str, values.ravel()))


def _choose(
    path: Path, variables: list[_Variable], bands: _Bands, image: tuple[int, int] | None, wanted: str | None
) -> tuple[_Variable, str | None]:
    """The array that holds the spectra, and in words why where others could."""
    if wanted is not None:
        named = next((variable for variable in variables if variable.name == wanted), None)
        if named is None or not named.is_array:
            what = "no variable" if named is None else "no cube or table of numbers in variable"
            raise ValueError(f"{path}: {what} {wanted!r}; the file has {_listed(variables)}")
        return named, None
    arrays = [variable for variable in variables if variable.is_array]
    if bands.vectors:
        fitting = [variable for variable in arrays if bands.size in variable.shape]
    else:
        fitting = [v for v in arrays if len(v.shape) == 3 or (image is not None and prod(image) in v.shape)] or arrays
    if len(fitting) == 1:
        return fitting[0], None
    if fitting:
        ordered = sorted(fitting, key=lambda v: _n_bands(v, image), reverse=True)
        most, *others = ordered
        if _n_bands(most, image) >= _MANY_TIMES * _n_bands(others[0], image) > 0:
            return most, f"{most} taken as the spectra: {_listed(others)} have less than a tenth of its bands"
        raise ValueError(f"{path}: which array holds the spectra is unclear: {_listed(fitting)}; pass variable=")
    if bands.vectors:
        raise ValueError(f"{path}: no array has an axis as long as {bands}; the file has {_listed(variables)}")
    raise ValueError(f"{path}: has no array of numbers of two or three dimensions; the file has {_listed(variables)}")


def _n_bands(array: _Variable, image: tuple[int, int] | None) -> int:
    """How many bands an image has, with its pixels in two axes or one; 0 where it is none."""
    if len(array.shape) == 3:
        return array.shape[2]
    if image is None or prod(image) not in array.shape:
        return 0
    return array.shape[1 - array.shape.index(prod(image))]


def _band_axis(path: Path, chosen: _Variable, bands: _Bands, image: tuple[int, int] | None) -> int:
    """Which of MATLAB's axes holds the bands."""
    axes = [axis for axis, size in enumerate(chosen.shape) if size == bands.size]
    if not axes and bands.vectors:
        raise ValueError(f"{path}: {chosen} has no axis as long as {bands}; correct one of them")
    if len(chosen.shape) == 3:
        return axes[-1] if axes else 2
    if not axes and image is not None and prod(image) in chosen.shape:
        return 1 - chosen.shape.index(prod(image))
    if len(axes) == 1:
        return axes[0]
    raise ValueError(
        f"{path}: which axis of {chosen} holds the bands is unclear; add a vector 'wavelength' as long as one of them"
    )


def _image_shape(path: Path, variables: list[_Variable]) -> tuple[int, int] | None:
    """Numbers of rows and columns where the file has variables of both."""
    sizes = []
    for names in (_ROWS, _COLUMNS):
        told = [v for v in variables if v.name.lower() in names and v.kind in _NUMBERS and prod(v.shape) == 1]
        if len(told) != 1:
            return None
        sizes.append(int(_load(path, told[0]).item()))
    return sizes[0], sizes[1]


def _scale(path: Path, variables: list[_Variable]) -> float | None:
    """The factor to fractions that a number called as a scale declares."""
    named = [v for v in variables if v.kind in _NUMBERS and prod(v.shape) == 1 and is_scale_name(v.field)]
    return declared_scale({named[0].field: _load(path, named[0])}, str(path)) if named else None


def _array(path: Path, chosen: _Variable, axis: int, image: tuple[int, int] | None, bands: str) -> xr.DataArray:
    """The array with its bands last, unread where it can be."""
    order = (*(place for place in range(len(chosen.shape)) if place != axis), axis)
    dims = ("sample", bands) if len(order) == 2 else ("y", "x", bands)
    if len(order) == 2 and image is not None and chosen.shape[order[0]] == prod(image):
        values = _real(path, chosen, _load(path, chosen)).transpose(order)
        return xr.DataArray(values.reshape(*image, -1, order="F"), dims=("y", "x", bands), name=chosen.name)
    if not _is_hdf5(path):
        return xr.DataArray(_real(path, chosen, _load(path, chosen)).transpose(order), dims=dims, name=chosen.name)
    with open_hdf5(path, _KIND) as file:
        dtype = _real(path, chosen, file[chosen.name]).dtype
    shape = tuple(chosen.shape[place] for place in order)
    unread = file_variable(dims, shape, dtype, partial(_window, path, chosen.name, order))
    return xr.DataArray(unread, name=chosen.name)


def _window(path: Path, name: str, order: tuple[int, ...], places: tuple[slice, ...]) -> np.ndarray:
    """Values of a window, axes in `order` of MATLAB's; HDF5 has them reversed."""
    stored = [slice(None)] * len(order)
    for axis, place in zip(order, places, strict=True):
        stored[len(order) - 1 - axis] = place
    with open_hdf5(path, _KIND) as file:
        return np.asarray(file[name][tuple(stored)].T.transpose(order))


def _real(path: Path, chosen: _Variable, values: Any) -> Any:
    if values.dtype.kind not in "iufb":
        raise ValueError(f"{path}: variable {chosen} holds complex numbers, not spectra")
    return values


def _listed(variables: list[_Variable]) -> str:
    return ", ".join(map(str, variables)) or "nothing"
