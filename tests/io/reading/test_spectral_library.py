"""ENVI spectral libraries: what comes out, as Spectral Python writes them and otherwise, and every kind of damage."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import succeed
from specinvert.io.reading.open import choose_reader, open_cube

WAVELENGTHS = [450.0, 550.0, 650.0, 850.0]
NAMES = ["fresh snow", "old snow", "ice"]
VALUES = np.arange(12, dtype="<f4").reshape(3, 4) / 16


def write_library(folder: Path, name: str = "lib", values: np.ndarray = VALUES, **changes: Any) -> Path:
    """A library and its header, of which ``changes`` replace entries; None leaves one out."""
    entries = {
        "description": "{spectra = of ice}",
        "samples": 4,
        "lines": 3,
        "bands": 1,
        "header_offset": 0,
        "file_type": "ENVI Spectral Library",
        "data_type": 4,
        "interleave": "bsq",
        "byte_order": 0,
        "wavelength_units": "Nanometers",
        "spectra_names": "{fresh snow,\n old   snow, ice}",
        "wavelength": "{" + ", ".join(map(str, WAVELENGTHS)) + "}",
    } | changes
    lines = [f"{key.replace('_', ' ')} = {value}" for key, value in entries.items() if value is not None]
    (folder / f"{name}.hdr").write_text("\n".join(["ENVI", *lines, ""]))
    path = folder / f"{name}.sli"
    path.write_bytes(values.tobytes())
    return path


@pytest.mark.parametrize("given", ["lib.sli", "lib.hdr"])
def test_a_library_is_a_table_of_spectra_with_their_names(tmp_path: Path, given: str) -> None:
    write_library(tmp_path)
    assert choose_reader(tmp_path / given)[1].name == "spectral_library"
    table = open_cube(tmp_path / given)
    assert (table.dims, table.dtype, table.chunks) == (("sample", "wavelength"), np.float32, ((3,), (4,)))
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.spectrum_name.values.tolist() == NAMES
    assert table.wavelength.values.tolist() == WAVELENGTHS
    assert table.wavelength.attrs["units"] == "Nanometers"
    assert table.isel(sample=2)[1:3].values.tolist() == VALUES[2, 1:3].tolist()
    blocks = open_cube(tmp_path / given, chunks={"sample": 2})
    assert blocks.chunks == ((2, 1), (4,))
    np.testing.assert_array_equal(blocks.values, VALUES)
    np.testing.assert_array_equal(open_cube(tmp_path / given, chunks=None).values, VALUES)
    assert "spectral_library" in succeed("info", tmp_path / given)


@pytest.mark.oracle
@pytest.mark.parametrize("units", ["nm", None])
def test_what_spectral_python_saves_comes_back(tmp_path: Path, units: str | None) -> None:
    envi = pytest.importorskip("spectral.io.envi")
    header: dict[str, Any] = {"wavelength": WAVELENGTHS, "spectra names": NAMES, "fwhm": [10.0, 11.0, 12.0, 13.0]}
    header |= {} if units is None else {"wavelength units": units}
    envi.SpectralLibrary(VALUES, header).save(str(tmp_path / "saved"), description="of ice")
    table = open_cube(tmp_path / "saved.sli")
    again = envi.open(str(tmp_path / "saved.hdr"))
    np.testing.assert_array_equal(table.values, again.spectra)
    assert table.spectrum_name.values.tolist() == again.names == NAMES
    assert table.wavelength.values.tolist() == again.bands.centers
    assert table.fwhm.values.tolist() == again.bands.bandwidths
    assert table.wavelength.attrs.get("units") == units


@pytest.mark.parametrize(
    ("kind", "order", "dtype"),
    [(1, 0, "u1"), (2, 1, ">i2"), (3, 0, "<i4"), (4, 1, ">f4"), (5, 0, "<f8"), (5, 1, ">f8"), (12, 0, "<u2")],
)
def test_types_byte_orders_scale_offset_and_no_data_are_decoded(
    tmp_path: Path, kind: int, order: int, dtype: str
) -> None:
    numbers = np.arange(1, 13).reshape(3, 4).astype(dtype)
    changes = {"data_type": kind, "byte_order": order, "header_offset": 5, "data_ignore_value": 7}
    path = write_library(tmp_path, **changes, reflectance_scale_factor=100, bbl="{1, 0, 1, 1}")
    path.write_bytes(b"start" + numbers.tobytes())
    table = open_cube(path)
    assert table.dtype == (np.float64 if kind == 5 else np.float32)
    expected = np.where(numbers == 7, np.nan, numbers.astype(float) / 100)
    np.testing.assert_allclose(table.values, expected, rtol=1e-6)
    assert table.good.values.tolist() == [True, False, True, True]


def test_other_spellings_of_files_and_headers_are_found(tmp_path: Path) -> None:
    path = write_library(tmp_path, spectra_names=None, byte_order=None, header_offset=None, bands=None)
    table = open_cube(path)
    assert "spectrum_name" not in table.coords
    path.rename(tmp_path / "lib")
    np.testing.assert_array_equal(open_cube(tmp_path / "lib").values, VALUES)
    np.testing.assert_array_equal(open_cube(tmp_path / "lib.hdr").values, VALUES)
    (tmp_path / "lib").rename(tmp_path / "LIB.SLI")
    (tmp_path / "lib.hdr").rename(tmp_path / "lib.sli.HDR")
    np.testing.assert_array_equal(open_cube(tmp_path / "LIB.SLI").values, VALUES)


def test_an_image_is_no_library(tmp_path: Path) -> None:
    path = write_library(tmp_path, file_type="ENVI Standard")
    assert {choose_reader(tmp_path / name)[1].name for name in ("lib.sli", "lib.hdr")} == {"raster"}
    with pytest.raises(ValueError, match=r"lib\.hdr: file type is ENVI Standard, not ENVI Spectral Library"):
        open_cube(path, reader="spectral_library")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wavelength": None}, r"lib\.hdr: lists no wavelengths; add them"),
        ({"wavelength": "{450, 550}"}, r"lib\.hdr: .*2 values of 'wavelength' for 4 bands"),
        ({"wavelength": "{450, 550, 650, x}"}, r"lib\.hdr: 'wavelength' holds 'x' where a number belongs"),
        ({"wavelength": "{450, 450, 650, 850}"}, r"lib\.hdr: .*450"),
        ({"wavelength": "{450, 550, 650, 850"}, r"lib\.hdr: a list lacks its closing brace: truncated or damaged"),
        ({"wavelength_units": "Wavenumber"}, r"lib\.hdr: wavelengths in 'Wavenumber' are not understood"),
        ({"fwhm": "{10, 10}"}, r"lib\.hdr: .*2 values of 'fwhm' for 4 bands"),
        ({"spectra_names": "{a, b}"}, r"lib\.hdr: 2 spectra names for 3 spectra, the lines"),
        ({"bands": 3}, r"lib\.hdr: 3 bands, where a spectral library has 1"),
        ({"lines": None}, r"lib\.hdr: does not tell 'lines'"),
        ({"lines": "many"}, r"lib\.hdr: lines holds 'many' where a number belongs"),
        ({"lines": 0, "spectra_names": None}, r"lib\.hdr: 0 spectra of 4 bands"),
        ({"lines": 4}, r"lib\.sli: truncated, 48 bytes where the header promises 64"),
        ({"lines": 2}, r"lib\.sli: 48 bytes where the header promises 32, 2 spectra \(lines\) of 4 bands"),
        ({"header_offset": "x"}, r"lib\.hdr: header offset holds 'x'"),
        ({"data_type": 6}, r"lib\.hdr: data type 6 in byte order 0; real numbers of types 1, 2"),
        ({"data_type": None}, r"lib\.hdr: does not tell 'data type'"),
        ({"data_type": 5}, r"lib\.sli: truncated, 48 bytes where the header promises 96"),
        ({"byte_order": 2}, "in byte order 2"),
        ({"file_compression": 1}, r"lib\.hdr: the spectra are compressed"),
        ({"reflectance_scale_factor": 0}, "reflectance scale factor 0 is not positive"),
        ({"data_ignore_value": "none"}, "data ignore value holds 'none'"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_read_is_one_clear_error(
    tmp_path: Path, changes: dict, message: str
) -> None:
    path = write_library(tmp_path, **changes)
    for given in (path, path.with_suffix(".hdr")):
        with pytest.raises(ValueError, match=message):
            open_cube(given)


def damage(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("given", "damaged", "content", "error", "message"),
    [
        ("lib.sli", "lib.hdr", None, FileNotFoundError, r"lib\.sli: no header beside it, .*lib\.hdr and lib\.sli\.hdr"),
        ("lib.hdr", "lib.sli", None, FileNotFoundError, r"lib\.hdr: no data file beside it"),
        ("lib.sli", "lib.sli", b"", ValueError, r"lib\.sli: the file is empty"),
        ("lib.hdr", "lib.sli", b"", ValueError, r"lib\.sli: truncated, 0 bytes where"),
        ("lib.hdr", "lib.hdr", b"", ValueError, r"lib\.hdr: the file is empty"),
        ("lib.sli", "lib.hdr", b"", ValueError, r"lib\.hdr: the file is empty"),
        ("lib.sli", "lib.hdr", b"\x89PNG\x00", ValueError, r"lib\.hdr: not an ENVI header"),
        ("lib.sli", "lib.sli", VALUES.tobytes()[:-1], ValueError, r"lib\.sli: truncated, 47 bytes where .* 48"),
    ],
)
def test_files_that_are_missing_empty_or_cut_off_are_named(
    tmp_path: Path, given: str, damaged: str, content: bytes | None, error: type[Exception], message: str
) -> None:
    write_library(tmp_path)
    damage(tmp_path / damaged, content)
    with pytest.raises(error, match=message):
        open_cube(tmp_path / given)


@pytest.mark.parametrize(("given", "locked"), [("lib.sli", "lib.hdr"), ("lib.hdr", "lib.sli"), ("lib.sli", "lib.sli")])
def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, locked: str
) -> None:
    write_library(tmp_path)
    allowed: Callable[..., Any] = Path.open

    def refusing(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.name == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return allowed(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refusing)
    with pytest.raises(PermissionError, match=rf"{locked}: no permission to read this file"):
        open_cube(tmp_path / given)


def test_a_library_has_no_variables_to_choose_from(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="variable='a' is for netCDF files; a spectral library holds one table"):
        open_cube(write_library(tmp_path), variable="a")


def test_values_that_are_cut_off_after_opening_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = write_library(tmp_path)
    table = open_cube(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"lib\.sli: its values cannot be read, damaged or truncated"):
        table.load()


@pytest.mark.parametrize("listed", ["[%s, %s, %s]", "(%s, %s, %s)", "{%s %s %s}", "{%s; %s; %s}", "{\n%s\n%s\n%s\n}"])
def test_lists_in_other_marks_are_read_and_empty_ones_tell_nothing(tmp_path: Path, listed: str) -> None:
    np.arange(6, dtype="<f4").tofile(tmp_path / "lib.sli")
    text = "ENVI\nfile type = ENVI Spectral Library\nsamples = 3\nlines = 2\nbands = 1\ndata type = 4\n"
    text += f"wavelength = {listed % (450, 460, 470)}\nfwhm = {{}}\nbbl = {{ }}\ndata ignore value = {{}}\n"
    text += "wavelength units = {}\nreflectance scale factor = {}\nspectra names = {}\n"
    for encoding in ("utf-8", "utf-8-sig"):
        (tmp_path / "lib.hdr").write_text(text, encoding=encoding)
        for given in ("lib.sli", "lib.hdr"):
            table = open_cube(tmp_path / given)
            assert table.wavelength.values.tolist() == [450.0, 460.0, 470.0]
            assert set(table.coords) == {"wavelength"}
            assert table.values.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_other_files_of_a_library_s_stem_are_what_they_are(tmp_path: Path) -> None:
    write_library(tmp_path)
    (tmp_path / "lib.csv").write_text("site,450,460\nwood,0.25,0.5\n")
    assert open_cube(tmp_path / "lib.csv").values.tolist() == [[0.25, 0.5]]
    (tmp_path / "lib.txt").write_text("site 450 460\nwood 0.25 0.5\n")
    assert open_cube(tmp_path / "lib.txt").values.tolist() == [[0.25, 0.5]]
    (tmp_path / "lib.img").write_bytes(b"II*\0")
    assert choose_reader(tmp_path / "lib.img")[1].name == "raster"
