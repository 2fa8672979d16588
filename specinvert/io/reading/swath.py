"""Maps and cubes of a swath to the grid of a map, with its CRS and transform."""

from __future__ import annotations

import os
from math import prod

import numpy as np
import xarray as xr
from affine import Affine
from dask.array.core import normalize_chunks

from ...cubes import Lookup, resample_swath
from .convention import Data, georeferenced
from .products.emit import read_lookup

_NAME = "values to orthorectify"


def orthorectify(maps: Data, lookup: Lookup | str | os.PathLike[str]) -> Data:
    """Resample maps, or a cube, from the geometry of a swath to that of a map: nearest neighbour, lazy where they are.

    Inverting the swath and resampling the maps costs less than the other way round, and inverts each spectrum once.
    Pixels of the map that have none of the swath are NaN, and have the nodata bit in quality flags. Memory holds
    a few blocks, and for each the smallest rectangle of the swath that holds its pixels.

    Parameters
    ----------
    maps : Dataset or DataArray over both dimensions of the swath; all of it, not a part.
    lookup : the EMIT file that the cube came from, or a :class:`specinvert.Lookup`.

    Returns
    -------
    The same kind of object over (y, x), with `x`, `y`, CRS and transform where `maps.rio` and
    :func:`specinvert.save_maps` find them. Attributes and data types are those of `maps`.

    Raises
    ------
    TypeError : `maps` is neither Dataset nor DataArray, or `lookup` neither a Lookup nor a path.
    FileNotFoundError, PermissionError : the file is missing or may not be read.
    ValueError : the file has no lookup table; the lookup is of another swath or points outside; or `maps` lacks
        the swath's dimensions or has flags without a bit for no data.

    Examples
    --------
    >>> import numpy as np
    >>> maps = xr.Dataset({"lai": (("downtrack", "crosstrack"), [[1.0, 2.0], [3.0, 4.0]])})
    >>> lookup = Lookup(np.array([[0, 1, 2]]), np.array([[0, 2, 1]]), (10.0, 0.5, 0.0, 50.0, 0.0, -0.5), "EPSG:4326")
    >>> orthorectify(maps, lookup)["lai"].values.tolist()
    [[nan, 3.0, 2.0]]
    """
    if not isinstance(maps, xr.DataArray | xr.Dataset):
        raise TypeError(f"maps must be a Dataset or DataArray, not {type(maps).__name__}")
    table = _lookup(lookup)
    transform = Affine.from_gdal(*table.transform)
    if isinstance(maps, xr.DataArray):
        made = resample_swath(maps.to_dataset(name=_NAME), table)[_NAME].rename(maps.name)
        return georeferenced(made, table.crs, transform, "the lookup")
    return georeferenced(resample_swath(maps, table), table.crs, transform, "the lookup")


def in_blocks(maps: xr.Dataset, dims: tuple[str, str]) -> xr.Dataset:
    """The maps with variables over both dimensions of a swath in one grid of dask blocks, lazy ones as they are.

    Blocks of all these variables together have dask's `array.chunk-size`; further dimensions stay whole.
    """
    held = [name for name, array in maps.data_vars.items() if set(dims) <= set(array.dims) and array.chunks is None]
    if not held:
        return maps
    shape = tuple(maps.sizes[dim] for dim in dims)
    pixel = sum(maps[name].nbytes for name in held) // max(prod(shape), 1)
    lengths = normalize_chunks("auto", shape=shape, dtype=np.dtype(f"V{max(pixel, 1)}"))
    return maps.assign({name: maps[name].chunk(dict(zip(dims, lengths, strict=True))) for name in held})


def _lookup(lookup: Lookup | str | os.PathLike[str]) -> Lookup:
    if isinstance(lookup, Lookup):
        return lookup
    if not isinstance(lookup, str | os.PathLike):
        raise TypeError(f"lookup must be a Lookup or the path of a file with one, not {type(lookup).__name__}")
    return read_lookup(lookup)
