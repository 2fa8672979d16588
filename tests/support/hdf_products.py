"""Small files in the layouts of EMIT, PRISMA and PACE products, for tests of their readers."""

from pathlib import Path

import h5py
import netCDF4
import numpy as np

WGS84 = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433],AUTHORITY["EPSG","4326"]]'
)
EMIT_WAVELENGTHS = np.array([500.0, 1380.0, 2200.0], np.float32)
GOOD = np.array([1, 0, 1], np.uint8)


def write_emit(path: Path, rows: int = 6, columns: int = 5, variable: str = "reflectance") -> np.ndarray:
    """A swath with a lookup table turned against it; returns the values stored."""
    values = np.random.default_rng(0).random((rows, columns, 3)).astype(np.float32)
    values[1, 2] = -9999.0
    values[:, :, 1] = -0.01
    values[2, 3, 0] = -0.01
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"instrument": "EMIT", "sensor": "EMIT (Earth Surface Mineral Dust Source Investigation)"})
        file.setncatts({"geotransform": np.array([10.0, 0.5, 0.0, 50.0, 0.0, -0.5]), "spatial_ref": WGS84})
        for name, size in (("downtrack", rows), ("crosstrack", columns), ("bands", 3), ("ortho_y", 4), ("ortho_x", 7)):
            file.createDimension(name, size)
        cube = file.createVariable(variable, "f4", ("downtrack", "crosstrack", "bands"), fill_value=-9999.0)
        cube[:] = values
        cube.units = "unitless"
        parameters = file.createGroup("sensor_band_parameters")
        for name, dtype, entries in (
            ("wavelengths", "f4", EMIT_WAVELENGTHS),
            ("fwhm", "f4", [8.5, 8.6, 8.7]),
            ("good_wavelengths", "u1", GOOD),
        ):
            parameters.createVariable(name, dtype, ("bands",))[:] = entries
        parameters["wavelengths"].units = parameters["fwhm"].units = "nm"
        location = file.createGroup("location")
        down, across = np.mgrid[0:rows, 0:columns]
        for name, entries in (("lat", 50.0 - down), ("lon", 10.0 + across), ("elev", 100.0 + down)):
            location.createVariable(name, "f8", ("downtrack", "crosstrack"), fill_value=-9999.0)[:] = entries
        location["elev"].units = "m"
        glt_y, glt_x = lookup_tables(rows, columns)
        for name, table in (("glt_y", glt_y), ("glt_x", glt_x)):
            location.createVariable(name, "i4", ("ortho_y", "ortho_x"), fill_value=0)[:] = table
    return values


def lookup_tables(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Places (4, 7) from 1, the axes of the swath exchanged; 0 in a corner and where the swath ends."""
    y, x = np.mgrid[0:4, 0:7]
    glt_y, glt_x = x + 1, columns - y
    outside = (glt_y > rows) | (glt_x < 1) | ((y == 0) & (x < 2))
    return np.where(outside, 0, glt_y).astype(np.int32), np.where(outside, 0, glt_x).astype(np.int32)


def write_prisma(path: Path, level: str = "2D") -> tuple[np.ndarray, np.ndarray]:
    """Both cubes, (6, 4, 5) and (6, 3, 5) in (y, band, x); returns their numbers."""
    rng = np.random.default_rng(0)
    vnir, swir = (rng.integers(1, 65536, (6, bands, 5)).astype(np.uint16) for bands in (4, 3))
    vnir[0, :, 0] = swir[0, :, 0] = 0
    vnir[2, 3, 4] = 0
    with h5py.File(path, "w") as file:
        fields = file.create_group(f"HDFEOS/SWATHS/PRS_L{level}_HCO/Data Fields")
        fields["VNIR_Cube"], fields["SWIR_Cube"] = vnir, swir
        place = file.create_group(f"HDFEOS/SWATHS/PRS_L{level}_HCO/Geolocation Fields")
        place["Latitude"], place["Longitude"] = np.mgrid[45:51, 10:15].astype(np.float32)
        file.attrs["List_Cw_Vnir"] = np.array([0, 972.5, 700, 402.5], np.float32)
        file.attrs["List_Cw_Vnir_Flags"] = np.array([0, 1, 1, 1], np.uint8)
        file.attrs["List_Fwhm_Vnir"] = np.array([0, 13, 12, 11], np.float32)
        file.attrs["List_Cw_Swir"] = np.array([2496.5, 942.5, 0], np.float32)
        file.attrs["List_Cw_Swir_Flags"] = np.array([1, 1, 0], np.uint8)
        file.attrs["List_Fwhm_Swir"] = np.array([9, 10, 0], np.float32)
        for name, low, high in (("Vnir", 0.0, 1.2), ("Swir", 0.1, 0.9)):
            file.attrs[f"L2Scale{name}Min"], file.attrs[f"L2Scale{name}Max"] = np.float32(low), np.float32(high)
        file.attrs["Processing_Level"] = np.bytes_(level)
        file.attrs["Epsg_Code"] = np.uint32(32632)
        corners = {"ULcorner_easting": 300015, "ULcorner_northing": 5000205}
        corners |= {"LRcorner_easting": 300015 + 4 * 30, "LRcorner_northing": 5000205 - 5 * 30}
        for name, value in corners.items():
            file.attrs[f"Product_{name}"] = np.float64(value)
    return vnir, swir


def write_pace(path: Path, variable: str = "rhos") -> np.ndarray:
    """A packed swath (4, 3, 2) with fills; returns the numbers stored."""
    numbers = np.random.default_rng(0).integers(-20000, 20000, (4, 3, 2)).astype(np.int16)
    numbers[1, 2] = -32767
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"title": "OCI Level-2 Data SFREFL", "instrument": "OCI", "platform": "PACE"})
        for name, size in (
            ("number_of_lines", 4),
            ("pixels_per_line", 3),
            ("wavelength_3d", 2),
            ("number_of_bands", 5),
        ):
            file.createDimension(name, size)
        data = file.createGroup("geophysical_data")
        cube = data.createVariable(
            variable, "i2", ("number_of_lines", "pixels_per_line", "wavelength_3d"), fill_value=-32767
        )
        cube.set_auto_maskandscale(False)
        cube[:] = numbers
        cube.setncatts({"scale_factor": np.float32(2e-5), "add_offset": np.float32(0.4), "units": "1"})
        flags = data.createVariable("l2_flags", "i4", ("number_of_lines", "pixels_per_line"))
        flags[:] = np.arange(12).reshape(4, 3)
        flags.setncatts({"flag_masks": np.array([1, 2], np.int32), "flag_meanings": "ATMFAIL LAND"})
        parameters = file.createGroup("sensor_band_parameters")
        wavelength = parameters.createVariable("wavelength_3d", "i4", ("wavelength_3d",))
        wavelength[:] = [555, 2258]
        wavelength.units = "nm"
        parameters.createVariable("wavelength", "i4", ("number_of_bands",))[:] = [340, 400, 555, 1250, 2258]
        navigation = file.createGroup("navigation_data")
        down, across = np.mgrid[0:4, 0:3]
        for name, entries in (("latitude", 30.0 - down), ("longitude", 20.0 + across)):
            place = navigation.createVariable(name, "f4", ("number_of_lines", "pixels_per_line"), fill_value=-32767.0)
            place[:] = entries
    return numbers
