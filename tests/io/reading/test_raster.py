"""ENVI and GeoTIFF files as people have them: odd keys, byte orders and scales are read, contradictions told."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.errors import NotGeoreferencedWarning

from specinvert.cubes.bands import describe_bands
from specinvert.io.reading.describe import describe_file
from specinvert.io.reading.open import choose_reader, open_cube

ORDERS = {"bil": (1, 0, 2), "bsq": (0, 1, 2), "bip": (1, 2, 0)}
VALUES = np.arange(3 * 4 * 5).reshape(3, 4, 5) * 100 - 50


def envi(folder: Path, more: str = "", interleave: str = "bip", dtype: str = ">i2", bands: int = 3) -> Path:
    """An image of 3 bands with an ENVI header written by hand; returns the image."""
    kinds = {"i2": 2, "u2": 12, "i4": 3, "f4": 4, "f8": 5}
    image = folder / "f970619t01p02_r02_sc01.rfl.img"
    image.write_bytes(np.ascontiguousarray(VALUES.transpose(ORDERS[interleave])).astype(dtype).tobytes())
    (folder / "f970619t01p02_r02_sc01.rfl.hdr").write_text(
        f"ENVI\ndescription = {{AVIRIS reflectance}}\nsamples = 5\nlines = 4\nbands = {bands}\nheader offset = 0\n"
        f"data type = {kinds[dtype[1:]]}\ninterleave = {interleave}\nbyte order = {int(dtype[0] == '>')}\n{more}"
    )
    return image


@pytest.mark.parametrize("interleave", ORDERS)
@pytest.mark.parametrize("dtype", [">i2", "<i2", "<u2", ">f4", "<f8"])
def test_every_interleave_byte_order_and_type_of_envi_gives_the_same_numbers(
    tmp_path: Path, interleave: str, dtype: str
) -> None:
    image = envi(tmp_path, "wavelength = {400, 500, 600}\nbbl = {1, 0, 1}\n", interleave, dtype)
    cube = open_cube(image)
    expected = VALUES.astype(dtype).astype(float).transpose(1, 2, 0)
    np.testing.assert_array_equal(cube.values, expected)
    assert cube.good.values.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("header", "scale"),
    [
        ("reflectance scale factor = 10000", 1e-4),
        ("Reflectance_Scale_Factor = 10000.0", 1e-4),
        ("reflectence scale factor = 10000", 1e-4),
        ("scale factor = 0.0001", 1e-4),
        ("Scale = 10000", 1e-4),
        ("reflectance scale factor = {10000, 10000, 10000}", 1e-4),
        ("data units = Percent", 0.01),
        ("data units = {Reflectance * 10000}", 1e-4),
        ("data units = Percent\nreflectance scale factor = 100", 0.01),
        ("scale = linear", 1.0),
        ("reflectance scale factor = 1", 1.0),
        ("data gain values = {0.0001, 0.0001, 0.0001}\ndata offset values = {0, 0, 0}", 1e-4),
    ],
)
def test_a_scale_by_any_name_is_applied_once(tmp_path: Path, header: str, scale: float) -> None:
    cube = open_cube(envi(tmp_path, header + "\n"))
    assert cube.dtype == np.float32
    np.testing.assert_allclose(cube.values, VALUES.transpose(1, 2, 0) * scale, rtol=1e-6)


@pytest.mark.parametrize("key", ["fwhm", "FWHM", "fwmh", "band_width"])
@pytest.mark.parametrize("wavelengths", ["wavelength", "Wavelengths", "wavelenght", "Center Wavelength"])
def test_misspelled_keys_are_understood(tmp_path: Path, key: str, wavelengths: str) -> None:
    header = f"{wavelengths} = {{0.4, 0.6, 0.5}}\n{key} = {{0.01, 0.02, 0.03}}\nwavelength unit = microns\n"
    cube = open_cube(envi(tmp_path, header))
    np.testing.assert_allclose(describe_bands(cube, "wavelength").wavelength, [400, 600, 500])
    assert cube.fwhm.values.tolist() == [0.01, 0.02, 0.03]


def test_header_and_image_may_be_called_in_capitals(tmp_path: Path) -> None:
    image = envi(tmp_path)
    header = image.with_suffix(".hdr").rename(tmp_path / "SCENE.HDR")
    image.rename(tmp_path / "SCENE.IMG")
    np.testing.assert_array_equal(open_cube(header).values, VALUES.transpose(1, 2, 0))


def test_units_matter_only_where_there_are_wavelengths(tmp_path: Path) -> None:
    assert open_cube(envi(tmp_path, "wavelength units = Index\n")).dims == ("y", "x", "band")
    assert (
        open_cube(envi(tmp_path, "wavelength units = Unknown\nwavelength = {400, 500, 600}\n")).sizes["wavelength"] == 3
    )


def rewrite(image: Path, **changes: str) -> None:
    header = image.with_suffix(".hdr")
    lines = header.read_text().splitlines()
    header.write_text(
        "\n".join(f"{key} = {changes[key]}" if (key := line.split(" =")[0]) in changes else line for line in lines)
    )


BROKEN: dict[str, tuple[str, Callable[[Path], object], type[Exception], str]] = {
    "truncated": (
        *("", lambda image: image.write_bytes(image.read_bytes()[:-3])),
        *(ValueError, r"rfl\.img: truncated, 117 bytes where the header promises 120"),
    ),
    "truncated header": (
        *("", lambda image: image.with_suffix(".hdr").write_text("ENVI\nsamples = 5\n")),
        *(ValueError, r"rfl\.img: not a raster file"),
    ),
    "no header": (
        *("", lambda image: image.with_suffix(".hdr").unlink()),
        *(ValueError, r"rfl\.img: not a raster file .*; the data file of ENVI needs its header, \.hdr, beside it"),
    ),
    "text": (
        *("", lambda image: image.write_text("wavelength,reflectance\n")),
        *(ValueError, r"rfl\.img: truncated"),
    ),
    "empty": ("", lambda image: image.write_text(""), ValueError, r"rfl\.img: the file is empty"),
    "missing": ("", lambda image: image.unlink(), FileNotFoundError, r"rfl\.img: no such file"),
    "fewer bands in the header": (
        *("", lambda image: rewrite(image, bands="2")),
        *(ValueError, r"rfl\.img: 120 bytes where the header promises 80, 2 bands of 4 lines of 5 samples"),
    ),
    "more bands in the header": (
        *("", lambda image: rewrite(image, bands="4")),
        *(ValueError, r"rfl\.img: truncated, 120 bytes where the header promises 160"),
    ),
    "fewer wavelengths": (
        *("wavelength = {400, 500}\n", lambda image: None),
        *(ValueError, r"rfl\.img: the metadata list 2 values of 'wavelength' for 3 bands"),
    ),
    "more widths": (
        *("wavelength = {400, 500, 600}\nfwhm = {1, 2, 3, 4}\n", lambda image: None),
        *(ValueError, r"the metadata list 4 values of 'fwhm' for 3 bands"),
    ),
    "unknown unit": (
        *("wavelength = {400, 500, 600}\nwavelength units = GHz\n", lambda image: None),
        *(ValueError, r"rfl\.img: wavelengths in 'GHz' are not understood; convert the metadata to nm, um or m"),
    ),
    "wavelength is text": (
        *("wavelength = {400, green, 600}\n", lambda image: None),
        *(ValueError, r"'wavelength' holds ' ?green' where a number belongs"),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_envi_image_is_told_in_one_line(tmp_path: Path, case: str) -> None:
    more, damage, error, message = BROKEN[case]
    image = envi(tmp_path, more)
    damage(image)
    with pytest.raises(error, match=message) as caught:
        open_cube(image)
    assert "\n" not in str(caught.value)


def test_a_file_of_another_kind_under_an_image_name_is_told(tmp_path: Path) -> None:
    for name, content in {
        "a.tif": b"%PDF-1.4",
        "b.img": b"\x1f\x8b\x08",
        "c.hdr": b"BYTEORDER I\n",
        "d.jp2": b"GIF8",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{name}: not (a raster file|an ENVI header)"):
            open_cube(tmp_path / name)


def test_a_jpeg_2000_image_that_ends_early_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jp2"
    values = np.random.default_rng(0).integers(0, 9999, (1, 64, 64)).astype(np.uint16)
    options = {"driver": "JP2OpenJPEG", "count": 1, "height": 64, "width": 64, "dtype": "uint16", "QUALITY": 100}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", REVERSIBLE="YES", **options) as file:
            file.write(values)
    np.testing.assert_array_equal(open_cube(path).values[..., 0], values[0])
    whole = path.read_bytes()
    for missing in (1, 50, len(whole) // 2):
        path.write_bytes(whole[:-missing])
        with pytest.raises(ValueError, match=r"a\.jp2: truncated, \d+ bytes and no end of the code stream"):
            open_cube(path)


def test_info_tells_the_bands_of_a_plain_raster(tmp_path: Path) -> None:
    image = envi(tmp_path, "wavelength = {0.4, 0.6, 0.5}\nwavelength units = Micrometers\nbbl = {1, 1, 0}\n")
    assert choose_reader(image)[1].name == "raster"
    text = describe_file(image)
    for part in (
        "y 4, x 5, wavelength 3, float32",
        "reader raster",
        "3 bands, 0.4 to 0.6 um, not in order",
        "2 bands marked",
    ):
        assert part in text
    named = envi(tmp_path, "band names = {blue, green, red}\n")
    assert "3 bands: blue, green, red" in describe_file(named)
