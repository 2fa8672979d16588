"""CRISM: small files in the sensor's true layout give the one cube convention."""

from pathlib import Path

import numpy as np
import pytest

from sensor_products import CRISM, WA, crism, crism_values, edit, label_of
from specinvert.cubes.bands import describe_bands
from specinvert.io.reading.open import choose_reader, open_cube


@pytest.mark.parametrize("give", [".LBL", ".IMG"])
def test_a_crism_image_has_the_wavelengths_of_the_file_that_its_label_names(tmp_path: Path, give: str) -> None:
    crism(tmp_path)
    path = tmp_path / f"{CRISM}{give}"
    assert choose_reader(path)[1].name == "crism"
    cube = open_cube(path)
    assert cube.dims == ("y", "x", "wavelength")
    np.testing.assert_allclose(cube.wavelength, [410.1, 1000.2, 530.3], rtol=1e-6)
    assert cube.wavelength.attrs["units"] == "nm"
    assert cube.attrs == {"sensor": "CRISM"}
    np.testing.assert_allclose(cube.values, crism_values(), rtol=1e-6)


def test_names_of_the_bands_in_the_label_tell_wavelengths_where_nothing_else_does(tmp_path: Path) -> None:
    label = crism(tmp_path)
    edit(
        label,
        "MRO:WAVELENGTH_FILE_NAME .*",
        'BAND_NAME = ("BAND 1: 410.1 nm", "BAND 2: 1000.2 nm", "BAND 3: 530.3 nm")',
    )
    cube = open_cube(label)
    assert cube.wavelength.values.tolist() == [410.1, 1000.2, 530.3]
    edit(label, "nm", "mm")
    assert open_cube(label).dims == ("y", "x", "band")
    edit(label, "SAMPLE_TYPE( *)= PC_REAL", r"SAMPLE_TYPE\1= ODD")
    with pytest.raises(ValueError, match=r"TRR3\.IMG: its label has SAMPLE_TYPE 'ODD', which is not understood"):
        open_cube(label)


def test_a_folder_called_as_the_image_of_a_label_is_no_image(tmp_path: Path) -> None:
    label = crism(tmp_path)
    image = tmp_path / f"{CRISM}.IMG"
    image.unlink()
    image.mkdir()
    with pytest.raises(FileNotFoundError, match=r"TRR3\.LBL: the image .* is not beside it"):
        open_cube(label)


def test_an_envi_header_beside_a_crism_image_comes_before_the_wavelength_file(tmp_path: Path) -> None:
    crism(tmp_path)
    (tmp_path / f"{WA.lower()}.img").unlink()
    header = tmp_path / f"{CRISM}.hdr"
    header.write_text(
        "ENVI\nsamples = 5\nlines = 4\nbands = 3\ndata type = 4\ninterleave = bil\nbyte order = 0\n"
        "wavelength units = Micrometers\nwavelength = {0.4101, 1.0002, 0.5303}\nbbl = {1, 1, 0}\n"
    )
    for path in (header, tmp_path / f"{CRISM}.IMG", tmp_path / f"{CRISM}.LBL"):
        cube = open_cube(path)
        assert describe_bands(cube, "wavelength").unit == "um"
        assert cube.good.values.tolist() == [True, True, False]
        np.testing.assert_allclose(cube.values, crism_values(), rtol=1e-6)
    edit(header, "bands = 3", "bands = 2")
    edit(header, r"\{0.4101, 1.0002, 0.5303\}\nbbl.*", "{0.4, 0.5}")
    with pytest.raises(
        ValueError, match=r"240 bytes where the header promises 160, 2 bands of 4 lines|2 bands where .* has 3"
    ):
        open_cube(header)


def test_a_crism_image_converted_to_envi_needs_no_label(tmp_path: Path) -> None:
    label = crism(tmp_path)
    label.unlink()
    image, header = tmp_path / f"{CRISM}.IMG", tmp_path / f"{CRISM}.hdr"
    with pytest.raises(FileNotFoundError, match=r"neither a PDS3 label .*TRR3\.LBL nor an ENVI header beside it"):
        open_cube(image)
    text = "ENVI\nsamples = 5\nlines = 4\nbands = 3\ndata type = 4\ninterleave = bil\nbyte order = 0\n"
    header.write_text(text)
    with pytest.raises(ValueError, match=r"TRR3\.hdr: no wavelengths; add them"):
        open_cube(header)
    header.write_text(text + "wavelength = {0.41, 1.0, 0.53}\nwavelength units = Micrometers\n")
    for path in (header, image):
        cube = open_cube(path)
        assert cube.attrs == {"sensor": "CRISM"}
        np.testing.assert_allclose(cube.values, crism_values(), rtol=1e-6)


def test_a_table_of_wavelengths_serves_as_well(tmp_path: Path) -> None:
    label = crism(tmp_path)
    edit(label, rf"{WA}\.IMG", "T0877_MRRWV_1.TAB")
    (tmp_path / "T0877_MRRWV_1.TAB").write_text("1, 410.10, 6.4\r\n2, 1000.20, 6.5\r\n3, 530.30, 6.6\r\n")
    assert open_cube(label).wavelength.values.tolist() == [410.1, 1000.2, 530.3]


def test_an_attached_label_with_wavelengths_of_its_own_needs_no_other_file(tmp_path: Path) -> None:
    inner = (
        "    BAND_BIN_CENTER   = (0.41, 1.0, 0.53)\r\n    BAND_BIN_WIDTH    = (0.01, 0.02, 0.03)\r\n"
        "    BAND_BIN_UNIT     = MICROMETER\r\n"
    )
    text = label_of("x", 3, 4, 5, inner=inner).replace('^IMAGE        =  "x"', "^IMAGE        = 101")
    text = text.replace("INSTRUMENT_ID                  = CRISM", "INSTRUMENT_ID                  = VIMS")
    text = text.replace('"I_OVER_F"', '"W/m**2/sr/um"')
    path = tmp_path / "cube.img"
    values = np.arange(60, dtype="<f4").reshape(4, 3, 5)
    path.write_bytes(text.encode().ljust(2000) + values.tobytes())
    cube = open_cube(path)
    assert describe_bands(cube, "wavelength").wavelength.tolist() == [410, 1000, 530]
    assert cube.fwhm.values.tolist() == [0.01, 0.02, 0.03]
    assert cube.attrs == {"sensor": "VIMS", "units": "W/m**2/sr/um"}
    np.testing.assert_array_equal(cube.values, values.transpose(0, 2, 1))
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="truncated, 2236 bytes where its label promises 2240"):
        open_cube(path)


def test_a_crism_product_of_other_layers_is_a_cube_by_band(tmp_path: Path) -> None:
    label = crism(tmp_path)
    edit(label, rf'"{WA}\.IMG"', '"N/A"')
    edit(label, "    BAND_STORAGE", '    BAND_NAME = ("INCIDENCE", "EMISSION", "PHASE")\r\n    BAND_STORAGE')
    cube = open_cube(label)
    assert cube.dims == ("y", "x", "band")
    assert cube.band.values.tolist() == ["INCIDENCE", "EMISSION", "PHASE"]
