"""Small cubes and maps, in memory and as files: rasters by rasterio, ENVI by hand, netCDF by xarray."""

import warnings

import dask.array as da
import numpy as np
import rasterio
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr
from affine import Affine
from rasterio.crs import CRS
from rasterio.errors import NotGeoreferencedWarning

TRANSFORM = Affine(30.0, 0.0, 366015.0, 0.0, -30.0, 5806125.0)
UTM = CRS.from_epsg(32633)
WAVELENGTHS = [418.2, 993.1, 902.3]


def write_raster(path, values, driver="GTiff", georeferenced=True, band_tags=None, **profile):
    """Write values (band, y, x); returns the path."""
    place = {"crs": UTM, "transform": TRANSFORM} if georeferenced else {}
    scales, offsets = profile.pop("scales", None), profile.pop("offsets", None)
    names, tags = profile.pop("names", None), profile.pop("tags", {})
    count, height, width = values.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(
            *(path, "w"),
            driver=driver,
            count=count,
            height=height,
            width=width,
            dtype=values.dtype,
            **place,
            **profile,
        ) as file:
            file.write(values)
            file.update_tags(**tags)
            for index, entry in enumerate(band_tags or [], start=1):
                file.update_tags(index, **entry)
            if scales is not None:
                file.scales = scales
            if offsets is not None:
                file.offsets = offsets
            if names is not None:
                file.descriptions = names
    return path


def enmap_like(path, **changes):
    """A small GeoTIFF with band tags as EnMAP products have them; band 2 is all nodata."""
    values = np.arange(3 * 4 * 5, dtype=np.int16).reshape(3, 4, 5) * 100 - 200
    values[1] = -32768
    values[0, 1, 2] = -32768
    tags = [
        {"wavelength": str(w), "wavelength_units": "Nanometers", "fwhm": "6.5", "bbl": str(int(i != 1))}
        for i, w in enumerate(WAVELENGTHS)
    ]
    options = {"nodata": -32768, "scales": [1e-4] * 3, "offsets": [0.0] * 3, "band_tags": tags} | changes
    return values, write_raster(path, values, **options)


def write_envi(folder, values, interleave="bil", header="", name="scene", suffix=".img"):
    """Write values (band, y, x) float32 as plain bytes with a header by hand; returns the data file."""
    order = {"bil": (1, 0, 2), "bsq": (0, 1, 2), "bip": (1, 2, 0)}[interleave]
    count, lines, samples = values.shape
    data = folder / f"{name}{suffix}"
    data.write_bytes(np.ascontiguousarray(values.astype("<f4").transpose(order)).tobytes())
    (folder / f"{name}.hdr").write_text(
        f"ENVI\ndescription = {{test}}\nsamples = {samples}\nlines = {lines}\nbands = {count}\n"
        "header offset = 0\nfile type = ENVI Standard\ndata type = 4\n"
        f"interleave = {interleave}\nbyte order = 0\n{header}"
    )
    return data


def netcdf_cube():
    cube = xr.DataArray(
        np.arange(24, dtype=np.float32).reshape(3, 2, 4),
        dims=("bands", "y", "x"),
        coords={"y": [5806110.0, 5806080.0], "x": 366030.0 + 30 * np.arange(4)},
        attrs={"units": "1", "long_name": "reflectance"},
        name="reflectance",
    )
    wavelength = ("bands", [0.5, 0.6, 0.7], {"units": "um"})
    return cube.assign_coords(wavelength=wavelength).rio.write_crs(UTM).to_dataset()


def maps_of(shape=(4, 5), lazy=False):
    y, x = 5806110.0 - 30 * np.arange(shape[0]), 366030.0 + 30 * np.arange(shape[1])
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 0.5
    values[1, 2] = np.nan
    flag = np.isnan(values).astype(np.uint8)
    if lazy:
        values, flag = da.from_array(values, chunks=(2, -1)), da.from_array(flag, chunks=(2, -1))
    maps = xr.Dataset(
        {
            "water": (("y", "x"), values, {"units": "g m-2", "long_name": "leaf water"}),
            "water_std": (("y", "x"), values * np.float32(0.1)),
            "quality_flag": (("y", "x"), flag, {"flag_meanings": "nodata", "flag_masks": np.uint8(1)}),
        },
        coords={"y": y, "x": x},
        attrs={"Conventions": "CF-1.11"},
    )
    return maps.rio.write_crs(UTM).rio.write_transform(TRANSFORM)
