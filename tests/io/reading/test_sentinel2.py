"""Sentinel-2: small files in the sensor's true layout give the one cube convention."""

import pickle
from pathlib import Path

import dask
import numpy as np
import pytest
import rasterio
from affine import Affine

from sensor_products import SAFE, UTM, edit, image_of, safe, write_jp2, write_tif
from specinvert.io.reading.open import choose_reader, open_cube


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ("0 0.5 1 0.5 0", 4.0),
        ("0 0 1 1 0 0", 4.0),
        ("0.1 0.9 1 0.3", 2 * (1 + 0.4 / 0.8 + 0.5 / 0.7)),
        ("1 1 0", None),
        ("0 0 0", None),
    ],
)
def test_the_width_of_a_band_is_that_of_its_response_in_the_metadata(
    tmp_path: Path, values: str, width: float | None
) -> None:
    root = safe(tmp_path, satellite="Sentinel-2C")
    assert "fwhm" not in open_cube(root).coords
    response = f'<Spectral_Response><STEP unit="nm">2</STEP><VALUES>{values}</VALUES></Spectral_Response>'
    edit(root / "MTD_MSIL2A.xml", "</Spectral_Information>", response + "</Spectral_Information>")
    cube = open_cube(root)
    if width is None:
        assert "fwhm" not in cube.coords
        return
    np.testing.assert_allclose(cube.fwhm, width)
    assert cube.fwhm.attrs["comment"] == "from the responses in the metadata"


@pytest.mark.parametrize("give", ["folder", "metadata"])
def test_a_safe_folder_gives_the_bands_of_20_m_with_offset_and_b08_averaged(tmp_path: Path, give: str) -> None:
    root = safe(tmp_path)
    cube = open_cube(root if give == "folder" else root / "MTD_MSIL2A.xml")
    assert cube.dims == ("y", "x", "wavelength")
    assert cube.dtype == np.float32
    names = ["B01", "B02", "B05", "B08", "B8A", "B12"]
    assert cube.band_name.values.tolist() == names
    assert cube.chunks[2] == (6,)
    assert (np.diff(cube.wavelength) > 0).all()
    assert cube.wavelength.values[[0, -1]].tolist() == [442.2, 2185.7]
    assert cube.fwhm.values[-1] == 185
    assert cube.attrs == {"sensor": "Sentinel-2B"}
    assert cube.rio.crs == UTM
    assert cube.rio.transform() == Affine(20.0, 0.0, 300000.0, 0.0, -20.0, 5900040.0)
    computed = cube.compute()
    assert np.isnan(computed.values[0, 0, [0, 1]]).all()
    np.testing.assert_allclose(computed.values[0, 1, 1], (2000 + 1 - 1001) / 1e4, rtol=1e-5)
    fine = 8000.0 + np.arange(64).reshape(8, 8)
    fine[0, 0] = np.nan
    means = np.nanmean(fine.reshape(4, 2, 4, 2), axis=(1, 3))
    np.testing.assert_allclose(computed.values[..., 3], (means - 1007) / 1e4, rtol=1e-5)


def test_a_safe_folder_gives_its_10_m_bands_on_request(tmp_path: Path) -> None:
    cube = open_cube(safe(tmp_path), variable="10m")
    assert cube.band_name.values.tolist() == ["B02", "B08"]
    assert cube.sizes["y"] == 8
    with pytest.raises(ValueError, match=r"lists no 60m images"):
        open_cube(tmp_path / SAFE, variable="60m")
    with pytest.raises(ValueError, match=r"variable='30m' is no pixel size; use one of 10m, 20m, 60m"):
        open_cube(tmp_path / SAFE, variable="30m")


def test_products_before_baseline_04_have_no_offset(tmp_path: Path) -> None:
    cube = open_cube(safe(tmp_path, baseline="03.01"))
    np.testing.assert_allclose(cube.values[0, 1, 1], 2001 / 1e4, rtol=1e-5)


def test_a_safe_cube_is_lazy_chunked_at_will_and_pickles(tmp_path: Path) -> None:
    root = safe(tmp_path)
    whole = open_cube(root, chunks=None)
    assert isinstance(whole.data, np.ndarray)
    cube = open_cube(root, chunks={"y": 2, "wavelength": 3})
    assert cube.chunks == ((2, 2), (4,), (3, 3))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(cube)).values, whole.values)
    with dask.config.set({"array.chunk-size": "100B"}):
        small = open_cube(root)
    assert small.chunks[2] == (6,)
    assert len(small.chunks[0]) > 1
    np.testing.assert_array_equal(small.values, whole.values)
    with pytest.raises(ValueError, match=r"chunks= names \['line'\]"):
        open_cube(root, chunks={"line": 2})
    with pytest.raises(ValueError, match="chunks='all' is not understood"):
        open_cube(root, chunks="all")


@pytest.mark.parametrize("place", ["../other", "/other"])
def test_images_outside_the_folder_of_the_product_are_refused(tmp_path: Path, place: str) -> None:
    root = safe(tmp_path)
    edit(root / "MTD_MSIL2A.xml", "<IMAGE_FILE>GRANULE", f"<IMAGE_FILE>{place}")
    with pytest.raises(ValueError, match=r"MTD_MSIL2A\.xml: names the image '.*other/.*', outside its folder"):
        open_cube(root)


def test_saturated_pixels_are_no_data(tmp_path: Path) -> None:
    root = safe(tmp_path)
    image = image_of(root, "B05", "20m")
    values = np.full((1, 4, 4), 60000, np.uint16)
    values[0, 1, 1] = 65535
    write_jp2(image, values, 20.0)
    band = open_cube(root).values[..., 2]
    assert np.argwhere(np.isnan(band)).tolist() == [[1, 1]]


def test_a_satellite_without_a_table_has_the_wavelengths_of_its_metadata(tmp_path: Path) -> None:
    root = safe(tmp_path, satellite="Sentinel-2C")
    cube = open_cube(root)
    assert cube.wavelength.values[:3].tolist() == [440, 450, 480]
    assert "fwhm" not in cube.coords
    edit(root / "MTD_MSIL2A.xml", "<Spectral_Information .*</Spectral_Information>", "")
    with pytest.raises(ValueError, match="no central wavelengths, which 'Sentinel-2C' needs"):
        open_cube(root)


def test_a_stack_of_sentinel_2_bands_has_their_wavelengths_and_no_other_layer(tmp_path: Path) -> None:
    values = np.full((4, 3, 3), 2500, np.int16)
    values[:, 0, 0] = 0
    path = write_tif(tmp_path / "stack.tif", values, names=["B12", "SCL", "B8A", "B2"])
    assert choose_reader(path)[1].name == "sentinel2"
    cube = open_cube(path, chunks={"wavelength": 1})
    assert cube.band_name.values.tolist() == ["B12", "B8A", "B02"]
    assert cube.wavelength.values.tolist() == [2202.4, 864.7, 492.4]
    assert cube.attrs["sensor"] == "Sentinel-2"
    assert "divided by 10000; no offset" in cube.attrs["comment"]
    assert "wavelengths of Sentinel-2A" in cube.attrs["comment"]
    assert np.isnan(cube.values[0, 0]).all()
    np.testing.assert_allclose(cube.values[1, 1], 0.25, rtol=1e-6)


def test_a_stack_keeps_the_scale_and_the_satellite_that_it_tells(tmp_path: Path) -> None:
    path = write_tif(tmp_path / "S2B_20230413.tif", np.full((2, 3, 3), 3000, np.uint16), names=["B03", "B08"])
    with rasterio.open(path, "r+") as file:
        file.scales, file.offsets = [1e-4, 1e-4], [-0.1, -0.1]
    cube = open_cube(path)
    assert cube.attrs == {"sensor": "Sentinel-2B"}
    assert cube.wavelength.values.tolist() == [559.0, 832.9]
    np.testing.assert_allclose(cube.values, 0.2, rtol=1e-6)
    floats = open_cube(write_tif(tmp_path / "S2A.tif", np.full((1, 2, 2), 0.03, np.float32), names=["B03"]))
    assert floats.attrs == {"sensor": "Sentinel-2A"}
    np.testing.assert_allclose(floats.values, 0.03)


def test_bands_called_b1_and_b2_alone_are_not_taken_for_sentinel_2_unless_asked(tmp_path: Path) -> None:
    path = write_tif(tmp_path / "camera.tif", np.ones((2, 3, 3), np.float32), names=["B1", "B2"])
    assert open_cube(path).dims == ("y", "x", "band")
    assert open_cube(path, reader="sentinel2").wavelength.values.tolist() == [442.7, 492.4]
    other = write_tif(tmp_path / "other.tif", np.ones((2, 3, 3), np.float32), names=["red", "nir"])
    with pytest.raises(ValueError, match="bands are called red, nir, which are not the names of Sentinel-2"):
        open_cube(other, reader="sentinel2")


def test_bands_whose_names_tell_other_wavelengths_are_not_those_of_sentinel_2(tmp_path: Path) -> None:
    values = np.ones((2, 3, 3), np.float32)
    near = write_tif(tmp_path / "S2A_near.tif", values, names=["B2 (490 nm)", "B8A (865 nm)"])
    assert open_cube(near).attrs["sensor"] == "Sentinel-2A"
    far = open_cube(write_tif(tmp_path / "S2A_far.tif", values, names=["B2 (550 nm)", "B8A (950 nm)"]))
    assert (far.wavelength.values.tolist(), "sensor" in far.attrs) == ([550, 950], False)


STACK = ("B02", "B8A", "B12")
NEW = np.random.default_rng(0).integers(1200, 5000, (3, 6, 6)).astype(np.uint16)


@pytest.mark.parametrize(
    ("file", "tags", "source"),
    [
        ("S2A_MSIL2A_20230801T100559_N0510_R022_T33UUP.tif", {}, "its processing baseline 05.10"),
        ("clip.tif", {"PRODUCT_URI": "S2A_MSIL2A_20230801T100559_N0400_R022.SAFE"}, "its processing baseline 04.00"),
        ("clip.tif", {"PROCESSING_BASELINE": "05.10"}, "its processing baseline 05.10"),
        ("clip_N0510.tif", {"BOA_ADD_OFFSET": "-1000"}, "its tag BOA_ADD_OFFSET"),
    ],
)
def test_a_stack_has_the_offset_that_its_tags_or_its_name_tell(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, tags: dict[str, str], source: str
) -> None:
    path = write_tif(tmp_path / file, NEW, names=STACK)
    with rasterio.open(path, "r+") as stack:
        stack.update_tags(**tags)
    cube = open_cube(path)
    np.testing.assert_allclose(cube.values, (NEW.transpose(1, 2, 0) - 1000.0) / 10000.0, atol=1e-6)
    told = f"offset of -1000 applied, as {source} tells"
    assert told in cube.attrs["comment"]
    assert told in caplog.text


@pytest.mark.parametrize(
    ("file", "tags"), [("S2A_N0301_x.tif", {}), ("c.tif", {"BOA_ADD_OFFSET": "0", "PROCESSING_BASELINE": "05.10"})]
)
def test_a_stack_of_an_older_baseline_or_with_its_offset_removed_has_none(
    tmp_path: Path, file: str, tags: dict[str, str]
) -> None:
    path = write_tif(tmp_path / file, NEW, names=STACK)
    with rasterio.open(path, "r+") as stack:
        stack.update_tags(**tags)
    cube = open_cube(path)
    np.testing.assert_allclose(cube.values, NEW.transpose(1, 2, 0) / 10000.0, atol=1e-6)
    assert "offset" not in cube.attrs["comment"]


def test_a_stack_that_tells_no_offset_is_said_to_look_like_one_where_nothing_is_dark(tmp_path: Path) -> None:
    bright = write_tif(tmp_path / "bright.tif", NEW, names=STACK)
    floats = write_tif(tmp_path / "floats.tif", (NEW / 1e4).astype(np.float32), names=STACK)
    for path in (bright, floats):
        assert "nothing is darker than 0.1, as in products of baseline 04.00" in open_cube(path).attrs["comment"]
    dark = write_tif(tmp_path / "dark.tif", NEW - 1000, names=STACK)
    assert "darker" not in open_cube(dark).attrs["comment"]


def test_the_metadata_beside_a_stack_tell_its_offset(tmp_path: Path) -> None:
    root = safe(tmp_path)
    path = write_tif(root / "stack.tif", NEW, names=STACK)
    offsets = [-1001, -1008, -1012]
    cube = open_cube(path)
    np.testing.assert_allclose(cube.values, (NEW.transpose(1, 2, 0) + offsets) / 10000.0, atol=1e-6)
    assert "offset of -1012 to -1001 applied, as MTD_MSIL2A.xml tells" in cube.attrs["comment"]
