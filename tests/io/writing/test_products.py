"""Map products as others read them: CF-1.11 in netCDF and Zarr, cloud-optimised GeoTIFF, the same maps in each."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import cf_units as udunits
import netCDF4
import numpy as np
import pytest
import rasterio
import xarray as xr
from rio_cogeo import cog_validate

import specinvert
from labelled import QUICK, fitted, make_cube, make_training, refuses
from specinvert import GLLiMInverter
from specinvert.io.writing import cf as ours
from specinvert.io.writing.cf import cf_units, is_udunits

ALL = (
    *("mean", "std", "flag", "q05", "ci90", "hdi90", "mode", "n_modes", "cov", "latent"),
    *("entropy", "residual", "fit_rmse", "log_evidence"),
)
FEW = ("mean", "std", "flag", "cov", "residual")
ATTRS = {
    "water_vapour_column": {"units": "kg m-2", "standard_name": "atmosphere_mass_content_of_water_vapor"},
    "leaf_dust": {},
}


@cache
def model() -> GLLiMInverter:
    """Parameters of several words, one with a standard name and units, one with neither."""
    training = make_training().rename(dict(zip(("water", "dust"), ATTRS, strict=True)))
    for name, attrs in ATTRS.items():
        training[name].attrs = attrs
    return GLLiMInverter(n_latent=1, **QUICK).fit(training)


def cube_of(kind: str) -> xr.DataArray:
    if kind == "table":
        return make_training(20, seed=3)["reflectance"]
    if kind == "time":
        dates = np.array(["2024-01-01", "2024-01-03"], "datetime64[ns]")
        return make_cube(("time", "y", "x", "band"), np.float32).assign_coords(time=dates)
    cube = make_cube(dtype=np.float32)
    if kind == "projected":
        return cube
    lat, lon = 50.0 - 0.1 * np.arange(5), 10.0 + 0.1 * np.arange(6)
    plain = cube.drop_vars(["spatial_ref", "y", "x"])
    if kind == "geographic":
        return plain.assign_coords(y=lat, x=lon).rio.write_crs("EPSG:4326").rio.write_transform()
    if kind == "untold":
        return cube.drop_vars(["y", "x"])
    if kind == "swath":
        swath = plain.rename(y="downtrack", x="crosstrack")
        places = zip(("lat", "lon"), np.meshgrid(lat, lon, indexing="ij"), strict=True)
        return swath.assign_coords({name: (("downtrack", "crosstrack"), values) for name, values in places})
    return plain


def complaints(path: Path, least: int) -> list[str]:
    """What the checker of CF-1.11 says of a file: 3 its errors, 2 and 1 its warnings too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from compliance_checker.suite import CheckSuite

        CheckSuite.load_all_available_checkers()
        suite = CheckSuite()
        with suite.load_dataset(str(path)) as file:
            groups, raised = suite.run_all(file, ["cf:1.11"])["cf:1.11"]
    found = [message for group in groups if group.weight >= least for message in leaves(group)]
    return [*found, *map(str, raised)]


def leaves(result: Any) -> list[str]:
    """Messages of what failed: of what passed, they inform only."""
    value = result.value
    failed = value[0] < value[1] if isinstance(value, tuple) else not value
    own = list(result.msgs or []) if failed else []
    return [*own, *(message for child in result.children or [] for message in leaves(child))]


def opened(path: Path) -> xr.Dataset:
    with xr.open_dataset(path, engine="zarr" if path.suffix == ".zarr" else "netcdf4", decode_coords="all") as maps:
        return maps.load().reset_coords([name for name in ("latent",) if name in maps.coords])


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["projected", "geographic", "untold", "swath", "table", "time", "plain"])
def test_outputs_in_netcdf_pass_the_cf_checker_without_an_error(tmp_path: Path, kind: str) -> None:
    maps = model().invert(cube_of(kind), outputs=ALL if kind in ("projected", "swath", "table") else FEW)
    specinvert.save_maps(maps, tmp_path / "maps.nc")
    assert complaints(tmp_path / "maps.nc", least=3) == []
    found = opened(tmp_path / "maps.nc")
    assert found["water_vapour_column_std"].attrs["standard_name"].endswith("_water_vapor standard_error")
    assert found.attrs["title"] == "Estimates of water vapour column, leaf dust from spectra"
    assert "doi:" in found.attrs["references"]
    assert "specinvert" in found.attrs["source"]
    for name, array in maps.data_vars.items():
        np.testing.assert_array_equal(found[name], array)
        assert (found[name].dims, found[name].dtype) == (array.dims, array.dtype)
    assert {"y", "x"} <= set(found.coords) or kind not in ("projected", "geographic", "untold")


@pytest.mark.oracle
@pytest.mark.parametrize("kind", ["projected", "time", "table"])
def test_default_outputs_leave_the_cf_checker_nothing_to_say(tmp_path: Path, kind: str) -> None:
    specinvert.save_maps(model().invert(cube_of(kind)), tmp_path / "maps.nc")
    assert complaints(tmp_path / "maps.nc", least=1) == []


def test_the_file_tells_axes_bands_flags_and_links_and_the_maps_given_stay(tmp_path: Path) -> None:
    maps = fitted(1).invert(cube_of("projected"), outputs=("mean", "std", "flag", "residual"))
    before = maps.copy(deep=True)
    specinvert.save_maps(maps.drop_vars("water_std"), tmp_path / "maps.nc")
    xr.testing.assert_identical(maps, before)
    with netCDF4.Dataset(tmp_path / "maps.nc") as file:
        x, wavelength, flag = file["x"], file["wavelength"], file["quality_flag"]
        assert (x.standard_name, x.axis, x.units) == ("projection_x_coordinate", "X", "metre")
        assert not {"_FillValue", "coordinates"} & {*x.ncattrs(), *wavelength.ncattrs()}
        assert (wavelength.standard_name, wavelength.units) == ("radiation_wavelength", "nm")
        assert flag.flag_masks.dtype == flag.dtype == np.uint8
        assert len(flag.flag_meanings.split()) == len(flag.flag_masks)
        assert file["water"].ancillary_variables == "quality_flag"
        assert file["residual"].coordinates == "wavelength"
        assert file["water"].grid_mapping == "spatial_ref"
    with rasterio.open(f"netcdf:{tmp_path / 'maps.nc'}:water") as raster:
        assert raster.crs.to_epsg() == 32633
        assert raster.transform == cube_of("projected").rio.transform()


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("kind", ["projected", "swath", "table"])
def test_zarr_and_netcdf_hold_the_same_maps_and_attributes(tmp_path: Path, kind: str, lazy: bool) -> None:
    cube = cube_of(kind)
    cube = cube.chunk({cube.dims[0]: 3}) if lazy else cube
    maps = model().invert(cube, outputs=ALL)
    for suffix in ("nc", "zarr"):
        specinvert.save_maps(maps, tmp_path / f"maps.{suffix}")
    netcdf, zarr = opened(tmp_path / "maps.nc"), opened(tmp_path / "maps.zarr")
    xr.testing.assert_equal(zarr, netcdf)
    xr.testing.assert_equal(zarr.drop_vars("latent"), maps.compute().drop_vars("latent"))
    np.testing.assert_array_equal(zarr["latent"], maps["latent"])
    assert zarr.attrs == netcdf.attrs
    assert zarr.rio.crs == maps.rio.crs if kind == "projected" else "spatial_ref" not in zarr
    for name, variable in netcdf.variables.items():
        assert zarr[name].dtype == variable.dtype or name in ("parameter", "parameter_2")
        assert set(zarr[name].attrs) == set(variable.attrs)
        assert all(np.array_equal(zarr[name].attrs[key], value) for key, value in variable.attrs.items())
    unconsolidated = xr.open_zarr(tmp_path / "maps.zarr", consolidated=False, decode_coords="all")
    xr.testing.assert_identical(unconsolidated.load().reset_coords("latent"), zarr)


def claimed(**arrays: Any) -> xr.Dataset:
    """Maps that claim CF, 3 x 2, of ones."""
    made = {name: (("y", "x"), np.ones((3, 2), np.float32), attrs) for name, attrs in arrays.items()}
    return xr.Dataset(made, attrs={"Conventions": "CF-1.11", "history": "2026-01-01T00:00:00Z simulated"})


def test_units_are_those_of_udunits(subtests: pytest.Subtests) -> None:
    for given, written in [
        *((text, text) for text in ("g/cm2", "µm", "%", "percent", "W m-2 sr-1 um-1", "1e-3 kg/(m2 s)", "m²/m²")),
        *((text, "1") for text in ("reflectance", "-", "")),
        *(("g per m2", "g per m2"), ("Nanometers", "nm"), ("unknown", None)),
    ]:
        with subtests.test(given=given, written=written):
            assert cf_units(given) == written
            if written is not None:
                udunits.Unit(written)


def test_text_that_is_no_unit_is_told_from_units(subtests: pytest.Subtests) -> None:
    for text in ["DN", "sunflowers", "g//m2", "m (", "vol%", "gC/m2", "m /", "kg)", "per m", "m^", "2^"]:
        with subtests.test(text=text):
            assert not is_udunits(text)
            with refuses(ValueError, repr(text), "not a unit"):
                cf_units(text)


@pytest.mark.oracle
def test_every_unit_known_here_is_known_to_udunits() -> None:
    names = {*ours._SYMBOLS, *ours._NAMES, *ours._PLAIN, *(f"{name}s" for name in ours._NAMES)}
    names |= {prefix + symbol for prefix in ours._PREFIXES for symbol in ours._SYMBOLS}
    names |= {f"{prefix}{name}s" for prefix in ours._PREFIX_NAMES for name in ours._NAMES}
    for name in names:
        assert is_udunits(name)
        udunits.Unit(name)


def test_units_that_are_none_are_kept_under_another_name_with_a_warning(tmp_path: Path) -> None:
    maps = claimed(water={"units": "sunflowers"}, dust={"units": "unitless"})
    with pytest.warns(UserWarning, match=r"'sunflowers' of 'water' are none of UDUNITS"):
        specinvert.save_maps(maps, tmp_path / "maps.nc")
    found = opened(tmp_path / "maps.nc")
    assert found["water"].attrs == {"units_as_given": "sunflowers"}
    assert found["dust"].attrs == {"units": "1"}
    assert maps["water"].attrs == {"units": "sunflowers"}


def test_names_that_cf_does_not_allow_are_changed_with_a_warning_and_their_links_with_them(tmp_path: Path) -> None:
    maps = claimed(
        **{
            "leaf water": {"ancillary_variables": "leaf water_std quality_flag gone"},
            "leaf water_std": {"long_name": "spread"},
            "leaf/water": {},
            "2nd": {},
            "quality_flag": {},
        }
    )
    with pytest.warns(UserWarning, match="'leaf water' as 'leaf_water', .*'leaf/water' as 'leaf_water_2'"):
        specinvert.save_maps(maps, tmp_path / "maps.nc")
    found = opened(tmp_path / "maps.nc")
    assert set(found) == {"leaf_water", "leaf_water_std", "leaf_water_2", "v2nd", "quality_flag"}
    assert found["leaf_water"].attrs == {
        "long_name": "leaf water",
        "ancillary_variables": "leaf_water_std quality_flag",
    }
    assert set(maps) == {"leaf water", "leaf water_std", "leaf/water", "2nd", "quality_flag"}


def test_wavelengths_out_of_order_become_an_auxiliary_coordinate_of_the_file(tmp_path: Path) -> None:
    cube = cube_of("projected").swap_dims(band="wavelength")
    maps = fitted(1).invert(cube, outputs=("mean", "residual"))
    with pytest.warns(UserWarning, match="dimension 'wavelength' as 'wavelength_number'"):
        specinvert.save_maps(maps, tmp_path / "maps.nc")
    assert complaints(tmp_path / "maps.nc", least=3) == []
    found = opened(tmp_path / "maps.nc")
    assert found["residual"].dims == ("y", "x", "wavelength_number")
    np.testing.assert_array_equal(found["wavelength"], cube["wavelength"])


@pytest.mark.parametrize("name", ["maps.nc", "maps.zarr", "maps.tif"])
def test_history_gets_a_line_with_the_time(tmp_path: Path, name: str) -> None:
    maps = claimed(water={})
    specinvert.save_maps(maps, tmp_path / name, history="specinvert invert model.nc scene.nc")
    if name.endswith("tif"):
        with rasterio.open(tmp_path / name) as file:
            lines = file.tags()["history"].split("\n")
    else:
        lines = opened(tmp_path / name).attrs["history"].split("\n")
    assert lines[0] == maps.attrs["history"] == "2026-01-01T00:00:00Z simulated"
    assert lines[1].endswith("Z specinvert invert model.nc scene.nc")


@pytest.mark.oracle
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize(("height", "width"), [(10, 10), (1, 3), (1100, 530)])
def test_geotiff_is_cloud_optimised_with_names_units_statistics_and_overviews(
    tmp_path: Path, height: int, width: int, lazy: bool
) -> None:
    water = np.random.default_rng(0).random((height, width), np.float32)
    water[0, 0] = np.nan
    flag = {"long_name": "quality flags", "flag_masks": np.array([1, 2], np.uint8), "flag_meanings": "nodata strange"}
    maps = xr.Dataset(
        {
            "water": (("y", "x"), water, {"units": "g m-2", "standard_name": "leaf_water"}),
            "empty": (("y", "x"), np.full_like(water, np.nan)),
            "quality_flag": (("y", "x"), np.isnan(water).astype(np.uint8), flag),
        },
        attrs={"title": "Estimates", "Conventions": "CF-1.11"},
    )
    maps = maps.rio.write_crs("EPSG:32633").rio.write_transform(rasterio.Affine(20.0, 5.0, 3e5, 5.0, -20.0, 5e6))
    specinvert.save_maps(maps.chunk(y=300, x=200) if lazy else maps, tmp_path / "maps.tif")
    for name in ("maps.tif", "maps_flag.tif"):
        assert cog_validate(tmp_path / name, strict=True, quiet=True) == (True, [], [])
    with rasterio.open(tmp_path / "maps.tif") as file:
        assert (file.descriptions, file.units) == (("water", "empty"), ("g m-2", None))
        assert np.isnan(file.nodatavals).all()
        assert (file.crs.to_epsg(), file.transform) == (32633, maps.rio.transform())
        assert bool(file.overviews(1)) == (height > 512)
        assert file.tags()["title"] == "Estimates"
        assert "Conventions" not in file.tags()
        tags = file.tags(1)
        assert float(tags["STATISTICS_MINIMUM"]) == pytest.approx(np.nanmin(water))
        assert float(tags["STATISTICS_MEAN"]) == pytest.approx(np.nanmean(water))
        np.testing.assert_array_equal(file.read(1), water)
    with rasterio.open(tmp_path / "maps_flag.tif") as file:
        assert (file.dtypes, file.nodata) == (("uint8",), None)
        assert (file.tags(1)["flag_masks"], file.tags(1)["flag_meanings"]) == ("1 2", "nodata strange")
        np.testing.assert_array_equal(file.read(1), np.isnan(water))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["maps.tif", "maps_flag.tif"]


def test_a_swath_is_no_geotiff_until_its_places_are_dropped(tmp_path: Path) -> None:
    maps = fitted(1).invert(cube_of("swath").rename(downtrack="y", crosstrack="x"))
    with refuses(ValueError, "maps.tif", "swath", "lat and lon", ".nc"):
        specinvert.save_maps(maps, tmp_path / "maps.tif")
    specinvert.save_maps(maps.drop_vars(["lat", "lon"]), tmp_path / "maps.tif")
    assert cog_validate(tmp_path / "maps.tif", strict=True, quiet=True)[0]


@pytest.mark.parametrize(
    ("name", "opened_by"), [("scene.nc", "specinvert"), ("scene.zarr", "specinvert"), ("scene.nc", "xarray")]
)
def test_maps_are_not_written_over_the_cube_they_come_from(tmp_path: Path, name: str, opened_by: str) -> None:
    path = tmp_path / name
    scene = make_cube(dtype=np.float32).to_dataset(name="reflectance")
    scene.to_netcdf(path) if path.suffix == ".nc" else scene.to_zarr(path, consolidated=False)
    cube = specinvert.open_cube(path) if opened_by == "specinvert" else xr.open_dataset(path)["reflectance"]
    maps = model().invert(cube.isel(y=slice(1, None)))
    with refuses(ValueError, "holds the cube that these maps come from, which would be lost"):
        specinvert.save_maps(maps, path)
    kept = specinvert.open_cube(path)
    np.testing.assert_array_equal(kept, scene["reflectance"])
    specinvert.save_maps(maps, tmp_path / f"maps{path.suffix}")
