"""From a user's cube to a checked request: the spectra, their band axis, which bands serve, what is nodata."""

from __future__ import annotations

import logging
import numbers
from dataclasses import dataclass

import numpy as np
import xarray as xr

from .bands import Bands, check_units, describe_bands, find_band_dim, match_bands, read_good
from .labels import find_spectra, no_labelled, require_numbers, require_one_band_chunk
from .values import fill_value, require_known_sizes, require_unpacked

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """A cube ready for the engine.

    ``bands`` index its bands in the model's order, ``fill`` stands for nodata. ``remarks`` say what was assumed of
    wavelengths, and which bands count as missing.
    """

    cube: xr.DataArray
    band_dim: str
    bands: np.ndarray
    fill: float | None
    remarks: tuple[str, ...] = ()

    @property
    def dtype(self) -> np.dtype:
        """Float type of the maps: that of the cube, float64 for integers."""
        single = self.cube.dtype.kind == "f" and self.cube.dtype.itemsize == 4  # in any byte order
        return np.dtype(np.float32 if single else np.float64)


def read_request(
    data: xr.DataArray | xr.Dataset,
    bands: Bands,
    spectra_name: object,
    spectra_units: str | None,
    band_dim: str | None = None,
    tolerance: float = 1.0,
    rechunk: str | None = None,
) -> Request:
    """Find the spectra in ``data`` and match their bands to those of training.

    ``tolerance`` in nm. Bands whose coordinate ``good`` is False become NaN, and count as missing. Raises ValueError
    where the cube is empty, holds no numbers, is packed integers, has its bands in several chunks, units that
    contradict training, or bands that do not match or are all bad.
    """
    if isinstance(data, xr.Dataset):
        named = spectra_name if spectra_name in data.data_vars else None
        data = find_spectra(data, None if named is None else str(named), band_dim)
    elif not isinstance(data, xr.DataArray):
        raise no_labelled("spectra", "DataArray or Dataset", data)
    cube = require_numbers(data, "the cube")
    require_known_sizes(cube, "the cube")
    dim = _band_dim(cube, bands, band_dim)
    if 0 in cube.shape:
        raise ValueError(f"the cube is empty, its sizes are {dict(cube.sizes)}: select at least one pixel and band")
    if not isinstance(tolerance, numbers.Real) or isinstance(tolerance, bool) or not 0 <= float(tolerance) < np.inf:
        raise ValueError(f"tolerance={tolerance!r} must be a finite number of nanometres, 0 or more")
    require_unpacked(cube)
    check_units(spectra_units, cube.attrs.get("units"), "the cube")
    offered = describe_bands(cube, dim)
    index = match_bands(bands, offered, tolerance)
    cube, remarks = _without_bad(require_one_band_chunk(cube, dim, rechunk), dim, index)
    return Request(cube, dim, index, fill_value(cube), (*remark_on_unit(offered), *remarks))


def remark_on_unit(bands: Bands, of: str = "") -> tuple[str, ...]:
    """What was assumed of wavelengths ``of`` something that came without units; empty where nothing was."""
    return (f"wavelengths{of and f' of {of}'} without units taken as {bands.unit}",) if bands.guessed else ()


def _without_bad(cube: xr.DataArray, dim: str, index: np.ndarray) -> tuple[xr.DataArray, tuple[str, ...]]:
    """The cube with NaN in bands marked bad, where the model uses any, and a remark on them."""
    good = read_good(cube, dim)
    if good is None or good[index].all():
        return cube, ()
    count = int((~good[index]).sum())
    if count == index.size:
        raise ValueError(
            f"all {count} bands of the model are marked bad in the cube: correct its coordinate 'good', or drop it "
            "with .drop_vars('good')"
        )
    number = cube if cube.dtype.kind == "f" else cube.astype(np.float64)
    masked = number.where(xr.DataArray(good, dims=dim)).assign_attrs(cube.attrs)
    masked.encoding = dict(cube.encoding)
    remark = f"{count} of {index.size} bands are marked bad in the cube (good is False) and count as missing"
    logger.info("%s", remark)
    return masked, (remark,)


def _band_dim(cube: xr.DataArray, bands: Bands, band_dim: str | None) -> str:
    """The cube's band dimension; without wavelengths in training it is named as there."""
    if band_dim is None and bands.wavelength is None and bands.dim in cube.dims:
        return bands.dim
    return find_band_dim(cube, band_dim)
