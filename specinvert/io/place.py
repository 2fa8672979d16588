"""Where maps lie: their grid mapping, spatial dimensions and affine transform, as rioxarray keeps them."""

from __future__ import annotations

from collections.abc import Hashable

import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
from affine import Affine
from rioxarray.exceptions import MissingSpatialDimensionError

_PIXEL_TOLERANCE = 0.1


def spatial_dims(maps: xr.Dataset) -> tuple[str, str] | None:
    """Names of the vertical and the horizontal dimension, or None where rioxarray knows none."""
    try:
        return str(maps.rio.y_dim), str(maps.rio.x_dim)
    except MissingSpatialDimensionError:
        return None


def grid_mapping(maps: xr.Dataset, array: xr.DataArray) -> str | None:
    """Name of the grid mapping that a variable of the maps declares, or has as a map of theirs."""
    if array.name in maps.coords:
        return None
    places = [array.encoding, array.attrs]
    dims = spatial_dims(maps)
    if dims is not None and set(dims) <= set(array.dims):
        places += [maps.encoding, maps.attrs, {"grid_mapping": "spatial_ref"}]
    name = next((place["grid_mapping"] for place in places if "grid_mapping" in place), None)
    return name if name in maps.coords else None


def has_places(maps: xr.Dataset, dims: tuple[str, str]) -> bool:
    """Whether the maps have coordinates along both dimensions, and these are numbers."""
    return all(dim in maps.coords and maps[dim].dtype.kind in "biuf" for dim in dims)


def refresh_transform(maps: xr.Dataset) -> xr.Dataset:
    """Rewrite the transform stored with the CRS where the coordinates, sliced since, disagree with it."""
    name = _georeference(maps)
    if name is None:
        return maps
    transform = transform_of(maps)
    if transform == _stored_transform(maps):
        return maps
    refreshed: xr.Dataset = maps.rio.write_transform(transform, grid_mapping_name=name)
    return refreshed


def transform_of(maps: xr.Dataset) -> Affine:
    """Return the stored transform where it agrees with the coordinates, else the one of the coordinates.

    Raises ValueError where neither tells the size of a pixel.
    """
    stored, dims = _stored_transform(maps), spatial_dims(maps)
    if dims is None or not has_places(maps, dims):
        return stored or Affine.identity()
    if stored is not None and (stored.b or stored.d):
        return stored
    y_dim, x_dim = dims
    if stored is None and 1 in (maps.sizes[y_dim], maps.sizes[x_dim]):
        raise ValueError(
            f"maps of {maps.sizes[y_dim]} x {maps.sizes[x_dim]} pixels do not tell the size of a pixel; "
            f"set it with maps.rio.write_transform(...), or drop the coordinates {y_dim!r} and {x_dim!r}"
        )
    fresh: Affine = maps.rio.transform(recalc=True)
    if stored is None:
        return fresh
    far_x, far_y = maps.sizes[x_dim], maps.sizes[y_dim]
    start = max(abs(fresh.c - stored.c) / abs(stored.a), abs(fresh.f - stored.f) / abs(stored.e))
    scale = max(abs(fresh.a / stored.a - 1) * far_x, abs(fresh.e / stored.e - 1) * far_y)
    return stored if start + scale < _PIXEL_TOLERANCE else fresh


def _stored_transform(maps: xr.Dataset) -> Affine | None:
    name = _georeference(maps)
    return None if name is None else Affine.from_gdal(*map(float, maps[name].attrs["GeoTransform"].split()))


def _georeference(maps: xr.Dataset) -> str | None:
    names = (grid_mapping(maps, array) for array in maps.data_vars.values())
    return next((name for name in names if name and "GeoTransform" in maps[name].attrs), None)


GEOGRAPHIC_AXES = {
    "latitude": ("degrees_north", frozenset({"lat", "latitude"})),
    "longitude": ("degrees_east", frozenset({"lon", "long", "longitude"})),
}


def is_geographic(name: Hashable, array: xr.DataArray | xr.Variable) -> str | None:
    """ "latitude" or "longitude" where the array says that it is one, by its standard name or its own."""
    declared = array.attrs.get("standard_name")
    for kind, (_, spellings) in GEOGRAPHIC_AXES.items():
        if declared == kind or (declared is None and str(name).lower() in spellings):
            return kind
    return None
