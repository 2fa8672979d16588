"""The registry behind `open_cube`: which reader takes a file, and how a user adds one."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from specinvert.io.reading import products as readers
from specinvert.io.reading.open import choose_reader, open_cube
from specinvert.io.reading.products import BUILT_IN, reader_names, register_reader

MARK = b"MYSENSOR"


@pytest.fixture(autouse=True)
def _same_readers_after() -> Iterator[None]:
    before = list(readers._readers)
    yield
    readers._readers[:] = before


def matches(path: Path, head: bytes) -> bool:
    return head.startswith(MARK)


def read(path: Path, chunks: object, variable: str | None) -> xr.DataArray:
    values = np.fromfile(path, "<f4", offset=len(MARK)).reshape(2, 3, 4)
    return xr.DataArray(values, dims=("y", "x", "band"), attrs={"variable": variable})


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "cube.own"
    path.write_bytes(MARK + np.arange(24, dtype="<f4").tobytes())
    return path


def test_a_reader_of_the_user_opens_its_files_and_no_other(mine: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a raster file"):
        open_cube(mine)
    register_reader("mine", matches, read)
    assert reader_names() == ["mine", *BUILT_IN]
    cube = open_cube(mine, variable="r")
    assert cube.dims == ("y", "x", "band")
    assert cube.attrs["variable"] == "r"
    other = tmp_path / "other.own"
    other.write_bytes(b"something else")
    assert choose_reader(other)[1].name == "raster"


def test_a_reader_is_asked_where_it_was_put_and_replaced_by_its_name(mine: Path) -> None:
    register_reader("mine", lambda path, head: True, read, before="raster")
    assert reader_names()[-2:] == ["mine", "raster"]
    register_reader("mine", matches, lambda *args: xr.DataArray(np.zeros(1)), before="emit")
    assert reader_names().count("mine") == 1
    assert reader_names()[reader_names().index("emit") - 1] == "mine"
    assert open_cube(mine).shape == (1,)


def test_a_reader_can_be_forced_by_name(mine: Path) -> None:
    register_reader("mine", lambda path, head: False, read)
    assert open_cube(mine, reader="mine").shape == (2, 3, 4)
    with pytest.raises(ValueError, match=r"no reader is called 'landsat'; there are mine, sentinel2, .*, raster"):
        open_cube(mine, reader="landsat")
    with pytest.raises(FileNotFoundError, match="no such file"):
        open_cube(mine.with_name("none"), reader="mine")


def test_a_reader_that_returns_no_cube_is_told(mine: Path) -> None:
    register_reader("mine", matches, lambda *args: np.zeros(3))  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match=r"cube\.own: reader 'mine' returned ndarray; it must return a DataArray"):
        open_cube(mine)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ("raster", matches, read),
            ValueError,
            "name='raster' cannot be given to a reader; choose one beside sentinel2",
        ),
        (("", matches, read), ValueError, "name='' cannot be given"),
        (("mine", "MYSENSOR", read), TypeError, "matches='MYSENSOR' must be a function"),
        (("mine", matches, None), TypeError, "open=None must be a function"),
        (("mine", matches, read, "landsat"), ValueError, "no reader is called 'landsat'"),
    ],
)
def test_what_cannot_be_registered_changes_nothing(arguments: tuple, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        register_reader(*arguments)
    assert reader_names() == list(BUILT_IN)
    register_reader("mine", matches, read)
    with pytest.raises(ValueError, match="before='mine' is the reader itself"):
        register_reader("mine", matches, read, before="mine")


@pytest.mark.parametrize(
    "head", [b"", b"\x00", b"II*\x00", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"MATLAB 5.0", b"a,b\n"]
)
def test_no_reader_fails_on_being_asked(subtests: pytest.Subtests, tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "file.bin"
    if head:
        path.write_bytes(head)
    else:
        path.mkdir()
    for name in BUILT_IN:
        with subtests.test(name=name):
            assert readers.find_reader(name).matches(path, head) in (True, False)


def test_a_folder_of_no_known_kind_and_one_that_may_not_be_read_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"not a file but a folder, and neither a Zarr store nor .*; give the path of"):
        open_cube(tmp_path)

    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(PermissionError, match="no permission to read this folder"):
        open_cube(tmp_path)


def test_readers_are_imported_only_when_asked() -> None:
    code = (
        "import sys; from specinvert.io.reading.open import open_cube; "
        "print([n for n in sys.modules if n.startswith('specinvert.io.reading.products.')"
        " or n in ('rasterio', 'netCDF4')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
