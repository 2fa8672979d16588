"""Damaged products of EnMAP, Sentinel-2 and CRISM are told in one line, sound ones described."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sensor_products import CRISM, ENMAP, MADE, SAFE, WA, cut, edit, image_of, label_of, safe, write_jp2, write_tif
from specinvert.io.reading.describe import describe_file
from specinvert.io.reading.open import open_cube


def break_side(kind: str, old: str, new: str) -> Callable[[Path], None]:
    names = {"enmap": f"{ENMAP}-METADATA.XML", "sentinel2": f"{SAFE}/MTD_MSIL2A.xml", "crism": f"{CRISM}.LBL"}
    return lambda folder: edit(folder / names[kind], old, new)


BROKEN: dict[str, tuple[str, Callable[[Path], None], type[Exception], str]] = {
    "enmap truncated": (
        *("enmap", lambda f: cut(f / f"{ENMAP}-SPECTRAL_IMAGE.TIF")),
        *(ValueError, r"SPECTRAL_IMAGE\.TIF: (truncated|not a raster)"),
    ),
    "enmap truncated metadata": (
        *("enmap", lambda f: cut(f / f"{ENMAP}-METADATA.XML")),
        *(ValueError, r"METADATA\.XML: not readable as XML, damaged or truncated"),
    ),
    "enmap text under its name": (
        *("enmap", lambda f: (f / f"{ENMAP}-SPECTRAL_IMAGE.TIF").write_text("hello")),
        *(ValueError, r"SPECTRAL_IMAGE\.TIF: not a raster file"),
    ),
    "enmap empty": (
        *("enmap", lambda f: (f / f"{ENMAP}-SPECTRAL_IMAGE.TIF").write_text("")),
        *(ValueError, r"SPECTRAL_IMAGE\.TIF: the file is empty"),
    ),
    "enmap without metadata": (
        *("enmap", lambda f: (f / f"{ENMAP}-METADATA.XML").unlink()),
        *(FileNotFoundError, r"no ENMAP01.*-METADATA\.XML beside it"),
    ),
    "enmap without wavelength": (
        *("enmap", break_side("enmap", "<wavelengthCenterOfBand>993.1</wavelengthCenterOfBand>", "")),
        *(ValueError, "wavelengthCenterOfBand of band 2 is missing"),
    ),
    "enmap wavelength is text": (
        *("enmap", break_side("enmap", ">993.1<", ">green<")),
        *(ValueError, "wavelengthCenterOfBand of band 2 holds 'green' where a number belongs"),
    ),
    "enmap repeated wavelength": (
        *("enmap", break_side("enmap", ">993.1<", ">418.4<")),
        *(ValueError, r"METADATA\.XML: 'wavelength' holds repeated values"),
    ),
    "enmap wavelengths in um": (
        *("enmap", break_side("enmap", ">(\\d+)\\.(\\d)</wave", ">0.\\1\\2</wave")),
        *(ValueError, r"METADATA\.XML: units 'nm' contradict the values"),
    ),
    "enmap other band count": (
        *("enmap", break_side("enmap", '<bandID number="4".*</bandID>', "")),
        *(ValueError, r"describes 3 bands where .*SPECTRAL_IMAGE\.TIF holds 4"),
    ),
    "enmap bands out of order": (
        *("enmap", break_side("enmap", 'number="4"', 'number="5"')),
        *(ValueError, "bands are not numbered from 1 to 4 in order"),
    ),
    "enmap without bands": (
        *("enmap", break_side("enmap", "bandCharacterisation", "other")),
        *(ValueError, "no bandCharacterisation, so no wavelengths"),
    ),
    "enmap radiance": (
        *("enmap", break_side("enmap", "<level>L2A", "<level>L1C")),
        *(ValueError, "level L1C, which is not surface reflectance"),
    ),
    "sentinel2 truncated": (
        *("sentinel2", lambda f: cut(write_jp2(image_of(f / SAFE, "B05", "20m"), noise(), 20.0), 0.9)),
        *(ValueError, r"B05_20m\.jp2: truncated, \d+ bytes and no end of the code stream"),
    ),
    "sentinel2 header only": (
        *("sentinel2", lambda f: cut(image_of(f / SAFE, "B05", "20m"), 0.1)),
        *(ValueError, r"B05_20m\.jp2: not a raster file"),
    ),
    "sentinel2 text under its name": (
        *("sentinel2", lambda f: image_of(f / SAFE, "B05", "20m").write_text("hello")),
        *(ValueError, r"B05_20m\.jp2: not a raster file"),
    ),
    "sentinel2 empty image": (
        *("sentinel2", lambda f: image_of(f / SAFE, "B05", "20m").write_text("")),
        *(ValueError, r"B05_20m\.jp2: not a raster file"),
    ),
    "sentinel2 image missing": (
        *("sentinel2", lambda f: image_of(f / SAFE, "B8A", "20m").unlink()),
        *(FileNotFoundError, r"B8A_20m\.jp2: missing, though MTD_MSIL2A\.xml lists it"),
    ),
    "sentinel2 metadata missing": (
        *("sentinel2", lambda f: (f / SAFE / "MTD_MSIL2A.xml").unlink()),
        *(FileNotFoundError, r"SAFE: no MTD_MSIL2A\.xml in this folder"),
    ),
    "sentinel2 truncated metadata": (
        *("sentinel2", lambda f: cut(f / SAFE / "MTD_MSIL2A.xml")),
        *(ValueError, r"MTD_MSIL2A\.xml: not readable as XML"),
    ),
    "sentinel2 level 1C": (
        *("sentinel2", lambda f: (f / SAFE / "MTD_MSIL2A.xml").rename(f / SAFE / "MTD_MSIL1C.xml")),
        *(ValueError, "level 1C, which is not surface reflectance"),
    ),
    "sentinel2 other metadata": (
        *("sentinel2", break_side("sentinel2", "Level-2A_User_Product", "Level-1C_User_Product")),
        *(ValueError, "a Level-1C_User_Product, not a Level-2A_User_Product"),
    ),
    "sentinel2 no satellite": (
        *("sentinel2", break_side("sentinel2", "SPACECRAFT_NAME", "OTHER")),
        *(ValueError, "no SPACECRAFT_NAME, so no wavelengths"),
    ),
    "sentinel2 no offsets": (
        *("sentinel2", break_side("sentinel2", "BOA_ADD_OFFSET ", "OTHER ")),
        *(ValueError, r"(no BOA_ADD_OFFSET, which baseline 04\.00 and later have|not readable as XML)"),
    ),
    "sentinel2 no quantification": (
        *("sentinel2", break_side("sentinel2", "BOA_QUANTIFICATION_VALUE", "OTHER")),
        *(ValueError, "BOA_QUANTIFICATION_VALUE is missing"),
    ),
    "sentinel2 quantification zero": (
        *("sentinel2", break_side("sentinel2", ">10000<", ">0<")),
        *(ValueError, "BOA_QUANTIFICATION_VALUE 0 is not positive"),
    ),
    "sentinel2 two granules": (
        *(
            "sentinel2",
            break_side("sentinel2", "</Granule>", "<IMAGE_FILE>GRANULE/x/IMG_DATA/y</IMAGE_FILE></Granule>"),
        ),
        *(ValueError, "2 granules; products of one tile only"),
    ),
    "sentinel2 images of other sizes": (
        *(
            "sentinel2",
            lambda f: write_jp2(image_of(f / SAFE, "B12", "20m"), np.ones((1, 6, 6), np.uint16), 20.0),
        ),
        *(ValueError, r"B12_20m\.jp2: its \(6, 6\) pixels do not fit the \(4, 4\)"),
    ),
    "crism truncated": (
        *("crism", lambda f: cut(f / f"{CRISM}.IMG")),
        *(ValueError, r"TRR3\.IMG: truncated, 168 bytes where its label promises 240"),
    ),
    "crism truncated label": (
        *("crism", lambda f: cut(f / f"{CRISM}.LBL", 0.3)),
        *(ValueError, r"TRR3\.LBL: truncated, the label has no END"),
    ),
    "crism empty label": (
        *("crism", lambda f: (f / f"{CRISM}.LBL").write_text("")),
        *(ValueError, r"TRR3\.LBL: the file is empty"),
    ),
    "crism image missing": (
        *("crism", lambda f: (f / f"{CRISM}.IMG").unlink()),
        *(FileNotFoundError, rf"the image {CRISM}\.IMG that it describes is not beside it"),
    ),
    "crism wavelength file missing": (
        *("crism", lambda f: (f / f"{WA.lower()}.img").unlink()),
        *(FileNotFoundError, rf"the wavelengths are in {WA}\.IMG, which is not beside it.*ENVI header"),
    ),
    "crism wavelength file without label": (
        *("crism", lambda f: (f / f"{WA.lower()}.lbl").unlink()),
        *(FileNotFoundError, rf"no label {WA.lower()}\.LBL beside it"),
    ),
    "crism wavelength file truncated": (
        *("crism", lambda f: cut(f / f"{WA.lower()}.img")),
        *(ValueError, rf"{WA.lower()}\.img: truncated"),
    ),
    "crism wavelength file of other bands": (
        *("crism", lambda f: (f / f"{WA.lower()}.lbl").write_text(label_of(f"{WA}.IMG", 2, 1, 5), newline="")),
        *(ValueError, r"wavelengths of 2 bands where .*TRR3\.LBL has 3"),
    ),
    "crism wavelength table without wavelengths": (
        *(
            "crism",
            lambda f: (edit(f / f"{CRISM}.LBL", rf"{WA}\.IMG", "W.TAB"), (f / "W.TAB").write_text("1, 2\n2, 3\n")),
        ),
        *(ValueError, r"W\.TAB: no column of wavelengths from 350 to 4100 nm"),
    ),
    "crism other number of wavelengths": (
        *("crism", break_side("crism", "    BAND_STORAGE", "    BAND_BIN_CENTER = (0.4, 0.5)\r\n    BAND_STORAGE")),
        *(ValueError, "2 values of BAND_BIN_CENTER for 3 bands"),
    ),
    "crism wavelengths are text": (
        *(
            "crism",
            break_side("crism", "    BAND_STORAGE", '    BAND_BIN_CENTER = ("a", "b", "c")\r\n    BAND_STORAGE'),
        ),
        *(ValueError, r"BAND_BIN_CENTER holds \['a', 'b', 'c'\] where numbers belong"),
    ),
    "crism unknown unit": (
        *(
            "crism",
            break_side(
                *("crism", "    BAND_STORAGE"),
                "    BAND_BIN_CENTER = (0.4, 0.5, 0.6)\r\n    BAND_BIN_UNIT = PARSEC\r\n    BAND_STORAGE",
            ),
        ),
        *(ValueError, r"TRR3\.LBL: units 'PARSEC' of 'wavelength' are not understood"),
    ),
}


def noise() -> np.ndarray:
    return np.random.default_rng(0).integers(1, 9999, (1, 40, 40)).astype(np.uint16)


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_product_is_told_in_one_line_and_never_read_as_something_else(tmp_path: Path, case: str) -> None:
    kind, damage, error, message = BROKEN[case]
    path = MADE[kind](tmp_path)
    damage(tmp_path)
    with pytest.raises(error, match=message) as caught:
        open_cube(path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("kind", MADE)
def test_a_product_that_may_not_be_read_is_an_error(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = MADE[kind](tmp_path)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(PermissionError, match=rf"{path.name}: no permission to read this f(ile|older)"):
        open_cube(path)


@pytest.mark.parametrize("kind", MADE)
def test_products_hold_one_cube_each(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValueError, match="variable='r' is"):
        open_cube(MADE[kind](tmp_path), variable="r")


def test_a_zipped_product_is_to_be_unzipped(tmp_path: Path) -> None:
    path = tmp_path / SAFE.replace(".SAFE", ".zip")
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match="unzip the product"):
        open_cube(path)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (
            "enmap",
            [
                "y 5, x 6, wavelength 4",
                "reader enmap",
                "sensor EnMAP",
                "4 bands, 418.4 to 1390.2 nm, not in order",
                "3 bands marked good",
                "EPSG:32633, pixels of 30 x 30 metre",
            ],
        ),
        ("sentinel2", ["y 4, x 4, wavelength 6", "reader sentinel2", "Sentinel-2B", "442.2 to 2185.7 nm", "20 x 20"]),
        ("crism", ["y 4, x 5, wavelength 3", "reader crism", "sensor CRISM", "3 bands, 410.1 to 1000.2 nm, not in"]),
    ],
)
def test_info_tells_reader_sensor_bands_and_place_of_every_product(tmp_path: Path, kind: str, parts: list[str]) -> None:
    text = describe_file(MADE[kind](tmp_path))
    for part in parts:
        assert part in text


def test_info_takes_the_variable_and_the_reader_that_open_cube_takes(tmp_path: Path) -> None:
    assert "y 8, x 8, wavelength 2" in describe_file(safe(tmp_path), variable="10m")
    camera = write_tif(tmp_path / "camera.tif", np.ones((2, 3, 3), np.float32), names=["B1", "B2"])
    assert "2 bands: B1, B2" in describe_file(camera)
    assert "2 bands, 442.7 to 492.4 nm" in describe_file(camera, reader="sentinel2")
