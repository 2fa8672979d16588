"""What `open_cube` makes of files that say less, or more, than usual; and of values that cannot be read."""

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import rasterio
import xarray as xr
from affine import Affine
from rasterio.crs import CRS
from rasterio.enums import ColorInterp

from specinvert.cubes.bands import describe_bands
from specinvert.io.reading.band_tags import band_wavelengths
from specinvert.io.reading.describe import describe_file
from specinvert.io.reading.open import open_cube

VALUES = np.arange(3 * 4 * 5, dtype=np.int16).reshape(3, 4, 5) + 1
NM = [450.5, 550.0, 650.25]


def tif(path: Path, values: np.ndarray = VALUES, names: list[str] | None = None, **options: object) -> Path:
    count, height, width = values.shape
    place = {"crs": CRS.from_epsg(32633), "transform": Affine(30.0, 0.0, 300000.0, 0.0, -30.0, 5900040.0)}
    size = {"count": count, "height": height, "width": width, "dtype": values.dtype}
    with rasterio.open(path, "w", driver="GTiff", **size, **place, **options) as file:
        file.write(values)
        if names is not None:
            file.descriptions = names
    return path


def envi(folder: Path, more: str = "", name: str = "a.img", **changes: object) -> Path:
    fields = {"samples": 5, "lines": 4, "bands": 3, "header offset": 0, "data type": 2, "interleave": "bsq"}
    fields |= {"byte order": 0} | {key.replace("_", " "): value for key, value in changes.items()}
    (folder / name).write_bytes(VALUES.astype("<i2").tobytes())
    header = folder / "a.hdr"
    header.write_text("ENVI\n" + "".join(f"{key} = {value}\n" for key, value in fields.items() if value != "") + more)
    return header


@pytest.mark.parametrize(
    "names",
    [
        ["450.5 nm", "550 nm", "650.25 nm"],
        ["Band 1 (450.5 Nanometers)", "Band 2 (550.0 Nanometers)", "Band 3 (650.25 Nanometers)"],
        ["blue: 0.4505 µm", "green: 0.55 µm", "red: 0.65025 µm"],
        ["450.5", "550.0", "650.25"],
        ["Rrs_450.5", "Rrs_550", "Rrs_650.25"],
    ],
)
def test_names_of_bands_that_all_tell_a_wavelength_are_taken_for_it(tmp_path: Path, names: list[str]) -> None:
    cube = open_cube(tif(tmp_path / "a.tif", names=names))
    np.testing.assert_allclose(describe_bands(cube, "wavelength").wavelength, NM)
    assert cube.attrs["comment"] == "wavelengths from the names of the bands"


@pytest.mark.parametrize(
    "names",
    [
        ["2001", "2002", "2003"],
        ["450 nm", "450 nm", "550 nm"],
        ["450 nm", "0.55 um", "650 nm"],
        ["450 nm", "550 nm", "mask"],
        ["450-520 nm", "520-600 nm", "630-690 nm"],
        ["blue", "green", "red"],
        [None, "550 nm", "650 nm"],
    ],
)
def test_names_that_may_mean_something_else_are_no_wavelengths(names: list[str | None]) -> None:
    assert band_wavelengths(names) is None


@pytest.mark.parametrize("text", ["[450.5, 550, 650.25]", "450.5 550 650.25", "450.5,550,650.25"])
def test_a_list_of_wavelengths_is_read_however_it_is_bracketed(tmp_path: Path, text: str) -> None:
    path = tif(tmp_path / "a.tif")
    with rasterio.open(path, "r+") as file:
        file.update_tags(wavelength=text)
    np.testing.assert_allclose(open_cube(path).wavelength, NM)


@pytest.mark.parametrize("chunks", ["auto", {"y": 3, "x": 2}, None])
def test_pixels_that_the_mask_of_the_file_leaves_out_are_nan(tmp_path: Path, chunks: object) -> None:
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        path = tif(tmp_path / "a.tif")
        with rasterio.open(path, "r+") as file:
            mask = np.full((4, 5), 255, np.uint8)
            mask[3, 4] = 0
            file.write_mask(mask)
    cube = open_cube(path, chunks=chunks)  # type: ignore[arg-type]
    assert np.argwhere(np.isnan(cube.values)).tolist() == [[3, 4, band] for band in range(3)]
    np.testing.assert_array_equal(cube.values[:3], VALUES.transpose(1, 2, 0)[:3])


def test_a_band_of_opacity_is_a_mask_and_no_band_of_the_cube(tmp_path: Path) -> None:
    opacity = np.ones((1, 4, 5), np.int16)
    opacity[0, 0, 1] = 0
    path = tif(tmp_path / "a.tif", np.concatenate([VALUES, opacity]))
    with rasterio.open(path, "r+") as file:
        file.colorinterp = [*file.colorinterp[:3], ColorInterp.alpha]
    cube = open_cube(path)
    assert dict(cube.sizes) == {"y": 4, "x": 5, "band": 3}
    assert np.argwhere(np.isnan(cube.values[..., 0])).tolist() == [[0, 1]]
    bytes_ = np.concatenate([VALUES, opacity]).astype(np.uint8)
    assert open_cube(tif(tmp_path / "b.tif", bytes_)).sizes["band"] == 4  # GDAL calls the fourth so by default


@pytest.mark.parametrize("name", ["a", "a.rfl", "a.spc", "a.v2"])
def test_a_header_finds_its_data_file_whatever_its_suffix(tmp_path: Path, name: str) -> None:
    header = envi(tmp_path, name=name)
    (tmp_path / "a.txt").write_text("notes")
    (tmp_path / f"{name}.aux.xml").write_text("<PAMDataset/>")
    np.testing.assert_array_equal(open_cube(header).values, VALUES.transpose(1, 2, 0))


@pytest.mark.parametrize(
    ("changes", "more", "message"),
    [
        ({"interleave": "foo"}, "", r"a\.img: its header has interleave 'foo', which is none of bsq, bil and bip"),
        ({"interleave": ""}, "", r"a\.img: its header has no interleave; correct it"),
        ({"header_offset": "abc"}, "", r"a\.img: header offset holds 'abc' where a number of bytes belongs"),
        ({"samples": 4}, "", r"a\.img: 120 bytes where the header promises 96, 3 bands of 4 lines of 4 samples of 2 b"),
        ({"lines": 3}, "", r"a\.img: 120 bytes where the header promises 90"),
        ({"data_type": 1}, "", r"a\.img: 120 bytes where the header promises 60"),
        ({"data_type": 99}, "", r"a\.img: not a raster file .*; check its header a\.hdr, which may be damaged"),
        ({}, "wavelength = {450, 550, 650}\nwavelength units = Micrometers\n", r"a\.hdr: units 'um' contradict the "),
        ({}, "wavelength = {450, 450, 650}\n", r"a\.hdr: .* repeated values \(450\.0\); correct the metadata"),
        ({}, "wavelength = {0, 0, 0}\n", r"a\.hdr: 'wavelength' is not positive for 3 of 3 bands"),
    ],
)
def test_a_header_that_cannot_be_right_is_told_in_one_line(
    tmp_path: Path, changes: dict[str, object], more: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        open_cube(envi(tmp_path, more, **changes))
    assert "\n" not in str(caught.value)


def test_an_archive_and_an_empty_data_file_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"PK\3\4" + bytes(60))
    with pytest.raises(ValueError, match=r"a\.xlsx: .*; it is a zip archive or a spreadsheet: unpack it, or save"):
        open_cube(tmp_path / "a.xlsx")
    header = envi(tmp_path)
    (tmp_path / "a.img").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.img: .*; the file is empty, get it anew"):
        open_cube(header)


def test_a_header_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    envi(tmp_path).write_text("as good as none")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ValueError, match=r"a\.img: .*; no permission to read its header a\.hdr"):
        open_cube(tmp_path / "a.img")


def netcdf(path: Path, version: str = "NETCDF4") -> Path:
    with netCDF4.Dataset(path, "w", format=version) as file:
        for name, size in (("rows", 4), ("cols", 5), ("bands", 3)):
            file.createDimension(name, size)
        file.title = "a cube with latitude and longitude"
        options = {"zlib": True} if version == "NETCDF4" else {}
        file.createVariable("rfl", "i2", ("rows", "cols", "bands"), fill_value=-9999, **options)[:] = VALUES.reshape(
            4, 5, 3
        )
        bands = file.createVariable("bands", "f4", ("bands",))
        bands[:], bands.units = NM, "nm"
        for name in ("lat", "lon"):
            file.createVariable(name, "f8", ("rows", "cols"))[:] = np.arange(20.0).reshape(4, 5)
    return path


def test_latitude_and_longitude_that_a_netcdf_file_does_not_link_are_kept(tmp_path: Path) -> None:
    cube = open_cube(netcdf(tmp_path / "a.nc"))
    assert cube.lat.dims == cube.lon.dims == ("rows", "cols")
    np.testing.assert_array_equal(cube.lon, np.arange(20.0).reshape(4, 5))
    np.testing.assert_allclose(cube.wavelength, NM)
    assert cube.chunks is not None


@pytest.mark.parametrize("version", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_a_classic_netcdf_file_that_lacks_its_last_values_is_told(tmp_path: Path, version: str) -> None:
    path = netcdf(tmp_path / "a.nc", version)
    np.testing.assert_array_equal(open_cube(path).values, VALUES.reshape(4, 5, 3))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"^\S+a\.nc: truncated, \d+ bytes where its variables take \d+; copy it"):
        open_cube(path)


def test_blocks_that_cannot_be_read_name_their_file_whatever_the_library_raises(tmp_path: Path) -> None:
    path = netcdf(tmp_path / "a.nc")
    with h5py.File(path) as file:
        chunk = file["rfl"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + chunk.size] = b"U" * chunk.size
    path.write_bytes(content)
    store = tmp_path / "a.zarr"
    bands = {"wavelength": ("wavelength", NM, {"units": "nm"})}
    cube = xr.DataArray(VALUES.reshape(4, 5, 3), dims=("y", "x", "wavelength"), coords=bands, name="rfl")
    cube.to_dataset().to_zarr(store, consolidated=False)
    for file in filter(Path.is_file, (store / "rfl" / "c").rglob("*")):
        file.write_bytes(file.read_bytes()[:10])
    for damaged in (path, store):
        lazy = open_cube(damaged)
        for read in (lazy.compute, lambda damaged=damaged: open_cube(damaged, chunks=None)):
            with pytest.raises(ValueError, match="its values cannot be read, damaged or truncated") as caught:
                read()
            assert str(caught.value).startswith(f"{damaged}: ")
            assert "\n" not in str(caught.value)


def test_info_tells_how_a_cube_is_stored_and_what_is_wrong_with_its_bands(tmp_path: Path) -> None:
    values = VALUES.copy()
    values[:, 0] = -1
    path = tif(tmp_path / "a.tif", values, ["450 nm", "550 nm", "650 nm"], nodata=-1)
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = [0.01] * 3, [-0.1] * 3
        file.update_tags(bbl="1,0,0")
    text = describe_file(path)
    for part in (
        "240 B in memory",
        f"{path.stat().st_size / 1000:.4g} kB on disk",
        "stored as int16, value = number * 0.01 + -0.1, no data -1",
        "blocks of y 4, x 5, wavelength 3",
        "wavelengths from the names of the bands",
        "no widths (fwhm), which training for these bands needs",
        "1 bands marked good, 2 bad: 550 to 650 nm",
        "25.0% of the values missing, others -0.04 to 0.5",
        "CRS EPSG:32633, pixels of 30 x 30 metre, WGS 84 / UTM zone 33N",
    ):
        assert part in text


def test_info_reads_windows_of_a_large_cube_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specinvert.io.reading.describe._WHOLE_BYTES", 1000)
    values = np.ones((2, 200, 300), np.float32)
    values[:, :100] = np.nan
    assert "% of the values missing (among 53.1% of them, from 9 places), others 1 to 1" in describe_file(
        tif(tmp_path / "a.tif", values)
    )
    text = describe_file(netcdf(tmp_path / "a.nc"))
    assert "stored as int16, no data -9999" in text
    assert "0.0% of the values missing, others 1 to 60" in text
    assert "latitude and longitude of every pixel (rows, cols)" in text


def test_an_envi_image_turned_against_the_axes_keeps_its_transform(tmp_path: Path) -> None:
    header = envi(
        tmp_path,
        "map info = {UTM, 1, 1, 300000, 5900040, 30, 30, 33, North, WGS-84, units=Meters, rotation=30}\n",
    )
    transform = open_cube(header).rio.transform(recalc=False)
    np.testing.assert_allclose(transform.b, 30 * np.sin(np.radians(30)), rtol=1e-6)
    assert "pixels of 30 x 30 Meter, turned against the axes" in describe_file(header)
