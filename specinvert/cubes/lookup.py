"""From the geometry of a swath to that of a map, through a table that says where each pixel of the map comes from."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dask
import dask.array as da
import numpy as np
import xarray as xr
from dask.base import tokenize

from .labels import places_of_blocks


@dataclass(frozen=True, eq=False)
class Lookup:
    """Which pixel of the swath each pixel of a map takes; nearest neighbours, chosen by who made the table.

    Attributes
    ----------
    glt_x : (rows, columns) integers; the place along the swath's second dimension, counted from 1; 0 for none.
    glt_y : (rows, columns) integers; the place along the swath's first dimension, counted from 1; 0 for none.
    transform : six numbers in GDAL's order, x = t0 + t1 column + t2 row and y = t3 + t4 column + t5 row of the upper
        left corner of a pixel. t2 and t4, a rotation, must be 0.
    crs : of the map, as WKT or such as "EPSG:4326".
    dims : names of the swath's dimensions.
    swath : their sizes, where known.

    Raises
    ------
    ValueError : the tables are not two-dimensional integers of one shape, point before the first pixel or outside
        `swath`, or `transform` is not what is described above.

    Examples
    --------
    >>> Lookup(np.array([[1, 0]]), np.array([[2, 0]]), (10.0, 0.5, 0.0, 50.0, 0.0, -0.5), "EPSG:4326").x.tolist()
    [10.25, 10.75]
    """

    glt_x: np.ndarray
    glt_y: np.ndarray
    transform: tuple[float, ...]
    crs: str
    dims: tuple[str, str] = ("downtrack", "crosstrack")
    swath: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("glt_x", "glt_y"):
            table = np.asarray(getattr(self, name))
            if table.ndim != 2 or table.dtype.kind not in "iu":
                raise ValueError(f"{name} of the lookup is {table.ndim}-dimensional {table.dtype}, not 2-D integers")
            if table.size and table.min() < 0:
                raise ValueError(
                    f"{name} of the lookup holds {table.min()}; places count from 1, and 0 stands for none"
                )
        if self.glt_x.shape != self.glt_y.shape:
            raise ValueError(f"glt_x {self.glt_x.shape} and glt_y {self.glt_y.shape} of the lookup differ in shape")
        steps = self.transform[1:6:4]
        if len(self.transform) != 6 or not np.isfinite(self.transform).all() or 0 in steps:
            raise ValueError(f"transform {self.transform} of the lookup must be six numbers in GDAL's order")
        if self.transform[2] or self.transform[4]:
            raise ValueError(f"transform {self.transform} of the lookup is rotated, which is not supported")
        if self.swath is not None:
            self.check(self.swath)

    def check(self, sizes: tuple[int, int]) -> None:
        """Raise ValueError where the table is of a swath of other sizes."""
        if self.swath is not None and sizes != self.swath:
            raise ValueError(
                f"the lookup is of a swath of {_sizes(self.dims, self.swath)}, the maps are of "
                f"{_sizes(self.dims, sizes)}; give all of the swath, and the lookup of the same scene"
            )
        for table, dim, size in zip((self.glt_y, self.glt_x), self.dims, sizes, strict=True):
            if table.size and table.max() > size:
                raise ValueError(
                    f"the lookup points outside the swath: to place {table.max()} of {size} along {dim!r}; "
                    "give all of the swath, and the lookup of the same scene"
                )

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the map."""
        rows, columns = self.glt_x.shape
        return rows, columns

    @cached_property
    def token(self) -> str:
        """A name for the tables, the same for equal ones."""
        return str(tokenize(self.glt_x, self.glt_y))

    @property
    def x(self) -> np.ndarray:
        """Centres of the columns, in units of the CRS."""
        return np.asarray(self.transform[0] + self.transform[1] * (np.arange(self.shape[1]) + 0.5))

    @property
    def y(self) -> np.ndarray:
        """Centres of the rows, in units of the CRS."""
        return np.asarray(self.transform[3] + self.transform[5] * (np.arange(self.shape[0]) + 0.5))


def resample_swath(maps: xr.Dataset, lookup: Lookup) -> xr.Dataset:
    """Give variables over the swath the dimensions (y, x) of the map, without its CRS.

    A pixel of the map that has none of the swath is NaN in floats, has the bit of `nodata` set in flags, as
    `flag_meanings` tell it, and is 0 or False in other variables; dates are NaT and text is empty. Data types,
    attributes and other dimensions stay.

    Lazy variables stay lazy, in even blocks at most as long and wide as those of the swath. A block of the map takes
    from the swath the smallest rectangle that holds its pixels, and no more; a lookup turned against the swath makes
    it up to twice as large as the block, and more where the scan lines overlap.

    Parameters
    ----------
    maps : variables over both dimensions of the swath, or neither. Coordinates over both go along, but not `lat`
        and `lon`, which x and y replace; those over one of the dimensions are left out.
    lookup : of all of the swath.

    Raises
    ------
    ValueError : `maps` lacks the dimensions of the swath, has others of the names x or y, a variable with one of
        the two dimensions only, or flags without a bit for no data; or the lookup points outside the swath.
    """
    swath = set(lookup.dims)
    if not swath <= set(maps.sizes):
        raise ValueError(f"the maps are over {tuple(map(str, maps.sizes))}; the lookup is of a swath {lookup.dims}")
    clashing = [name for name in ("y", "x") if name in set(maps.variables) | set(maps.sizes)]
    if clashing:
        raise ValueError(f"{clashing} of the maps would be overwritten by those of the map grid; rename them")
    halves = [name for name, array in maps.data_vars.items() if len(swath & set(array.dims)) == 1]
    if halves:
        raise ValueError(f"{halves} have one dimension of the swath {lookup.dims} without the other; drop them")
    lookup.check((maps.sizes[lookup.dims[0]], maps.sizes[lookup.dims[1]]))
    left_out = [
        name
        for name, coordinate in maps.coords.items()
        if swath & set(coordinate.dims) and (not swath <= set(coordinate.dims) or name in ("lat", "lon"))
    ]
    maps = maps.drop_vars(left_out)
    made: dict[Hashable, xr.Variable] = {
        name: _resampled(name, variable, lookup) if swath <= set(variable.dims) else variable
        for name, variable in maps.variables.items()
    }
    coords = {name: made[name] for name in maps.coords}
    result = xr.Dataset({name: made[name] for name in maps.data_vars}, coords, maps.attrs)
    return result.assign_coords(y=("y", lookup.y), x=("x", lookup.x))


def _resampled(name: Hashable, variable: xr.Variable, lookup: Lookup) -> xr.Variable:
    others = [dim for dim in variable.dims if dim not in lookup.dims]
    swath_last = variable.transpose(*others, *lookup.dims)
    nothing = _nothing(name, variable)
    if variable.chunks is None:
        values: Any = _gather(swath_last.values, lookup.glt_y, lookup.glt_x, (0, 0), nothing)
    else:
        values = _lazy(swath_last.data, lookup, nothing)
    renamed = dict(zip(lookup.dims, ("y", "x"), strict=True))
    made = xr.Variable((*others, "y", "x"), values, variable.attrs)
    return made.transpose(*(renamed.get(str(dim), dim) for dim in variable.dims))


def _nothing(name: Hashable, variable: xr.Variable) -> Any:
    """What stands for no data in a variable."""
    if "flag_masks" in variable.attrs:
        masks = np.ravel(variable.attrs["flag_masks"])
        meanings = str(variable.attrs.get("flag_meanings", "")).split()
        if "nodata" not in meanings[: masks.size]:
            raise ValueError(f"flags {name!r} have no bit 'nodata' among {meanings}; drop them, or add it")
        return variable.dtype.type(masks[meanings.index("nodata")])
    if variable.dtype.kind in "mM":
        return np.array("NaT", dtype=variable.dtype)[()]
    if variable.dtype.kind in "fc":
        return variable.dtype.type(np.nan)
    return "" if variable.dtype.kind in "OUST" else variable.dtype.type(0)


def _lazy(swath: da.Array, lookup: Lookup, nothing: Any) -> da.Array:
    """The map as a dask array: each block by one task, from the rectangle of the swath that it needs."""
    whole = swath.rechunk(dict.fromkeys(range(swath.ndim - 2), -1))
    counts = [-(-size // max(sizes)) for size, sizes in zip(lookup.shape, whole.chunks[-2:], strict=True)]
    even = tuple(-(-size // max(count, 1)) for size, count in zip(lookup.shape, counts, strict=True))
    chunks = da.empty(lookup.shape, chunks=even).chunks
    token = tokenize(whole.name, lookup.token, nothing)
    blocks = np.empty(tuple(len(sizes) for sizes in chunks), dtype=object)
    for index, place in zip(np.ndindex(*blocks.shape), places_of_blocks(chunks), strict=True):
        rows, columns = lookup.glt_y[place], lookup.glt_x[place]
        shape = (*whole.shape[:-2], *rows.shape)
        there = (rows > 0) & (columns > 0)
        if not there.any():
            blocks[index] = da.full(shape, nothing, dtype=swath.dtype, chunks=-1)
            continue
        low = int(rows[there].min()) - 1, int(columns[there].min()) - 1
        high = int(rows[there].max()), int(columns[there].max())
        window = whole[..., low[0] : high[0], low[1] : high[1]]
        name = f"orthorectify-{token}-{index[0]}-{index[1]}"
        task = dask.delayed(_gather, pure=True)(window, rows, columns, low, nothing, dask_key_name=name)
        blocks[index] = da.from_delayed(task, shape, dtype=swath.dtype, meta=np.empty((0,) * len(shape), swath.dtype))
    return da.block(blocks.tolist())


def _gather(
    window: np.ndarray, rows: np.ndarray, columns: np.ndarray, start: tuple[int, int], nothing: Any
) -> np.ndarray:
    """Values (..., rows, columns) of the map from a rectangle of the swath whose first pixel is `start`."""
    there = (rows > 0) & (columns > 0)
    made = np.full((*window.shape[:-2], *rows.shape), nothing, dtype=window.dtype)
    made[..., there] = window[..., rows[there] - 1 - start[0], columns[there] - 1 - start[1]]
    return made


def _sizes(dims: tuple[str, str], sizes: tuple[int, int]) -> str:
    return " x ".join(f"{size} {dim}" for dim, size in zip(dims, sizes, strict=True))
