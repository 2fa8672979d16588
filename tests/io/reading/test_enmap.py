"""EnMAP: small files in the sensor's true layout give the one cube convention."""

from pathlib import Path

import numpy as np
import pytest
import rasterio

from sensor_products import CENTRES, ENMAP, UTM, edit, enmap, write_tif
from specinvert.cubes.bands import describe_bands
from specinvert.io.reading.open import choose_reader, open_cube


@pytest.mark.parametrize("give", ["image", "metadata"])
def test_an_enmap_product_keeps_the_order_of_its_bands_and_marks_those_without_data(tmp_path: Path, give: str) -> None:
    image = enmap(tmp_path)
    path = image if give == "image" else tmp_path / f"{ENMAP}-METADATA.XML"
    assert choose_reader(path)[1].name == "enmap"
    cube = open_cube(path)
    assert cube.dims == ("y", "x", "wavelength")
    assert cube.dtype == np.float32
    assert cube.wavelength.values.tolist() == list(CENTRES)
    assert describe_bands(cube, "wavelength").unit == "nm"
    assert cube.fwhm.values.tolist() == [7, 8, 9, 10]
    assert cube.good.values.tolist() == [True, True, True, False]
    assert cube.attrs == {"sensor": "EnMAP"}
    assert cube.rio.crs == UTM
    with rasterio.open(image) as file:
        stored = file.read().astype(float)
    stored[stored == -32768] = np.nan
    np.testing.assert_allclose(cube.values, stored.transpose(1, 2, 0) * 1e-4, rtol=1e-6)


def test_a_band_is_without_data_only_where_no_pixel_of_the_scene_has_any(tmp_path: Path) -> None:
    image = enmap(tmp_path)
    values = np.full((4, 300, 200), -32768, np.int16)
    values[:3, 200:, 100:] = 7
    values[2, 290:, 190:] = -32768
    write_tif(image, values)
    assert open_cube(image).good.values.tolist() == [True, True, True, False]
    write_tif(image, np.full((4, 30, 20), -32768, np.int16))
    assert not open_cube(image).good.values.any()


def test_the_gain_offset_and_background_of_each_enmap_band_are_those_of_its_metadata(tmp_path: Path) -> None:
    image = enmap(tmp_path)
    metadata = tmp_path / f"{ENMAP}-METADATA.XML"
    edit(
        metadata,
        r'(number="2".*?)<GainOfBand>0.0001</GainOfBand><OffsetOfBand>0<',
        r"\1<GainOfBand>0.5</GainOfBand><OffsetOfBand>3<",
    )
    edit(metadata, "<backgroundValue>-32768", "<backgroundValue>-50")
    with pytest.warns(UserWarning, match="not declare as fills"):
        cube = open_cube(image, chunks=None)
    with rasterio.open(image) as file:
        stored = file.read()
    np.testing.assert_allclose(cube.values[1, 1, :2], [stored[0, 1, 1] * 1e-4, stored[1, 1, 1] * 0.5 + 3], rtol=1e-6)
    assert np.isnan(cube.values[0, 0]).all()


def test_a_geotiff_cut_from_an_enmap_product_is_read_by_the_tags_of_its_bands(tmp_path: Path) -> None:
    wavelengths = np.linspace(420, 2440, 210)
    tags = [{"wavelength": str(w), "wavelength_units": "Nanometers", "bbl": str(int(w < 2400))} for w in wavelengths]
    path = write_tif(tmp_path / "enmap_tile.tif", np.ones((210, 2, 2), np.int16), band_tags=tags)
    assert choose_reader(path)[1].name == "enmap"
    cube = open_cube(path)
    assert cube.attrs["sensor"] == "EnMAP"
    assert int(cube.good.sum()) == (wavelengths < 2400).sum()
    maps = write_tif(tmp_path / "enmap_lai.tif", np.ones((2, 2, 2), np.float32))
    assert choose_reader(maps)[1].name == "raster"
