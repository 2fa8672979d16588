"""Files that cannot be read are told in one line, when they are opened."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401  (registers .rio)
import xarray as xr

from files import enmap_like, write_envi, write_raster
from sensor_products import crism
from specinvert.io.reading.open import open_cube

pytestmark = pytest.mark.filterwarnings(
    # rioxarray still multiplies affine transforms with *
    "ignore:Use `@` matmul:PendingDeprecationWarning"
)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.tif: no such file"):
        open_cube(tmp_path / "nowhere.tif")


def test_a_directory_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="not a file"):
        open_cube(tmp_path)


@pytest.mark.parametrize("name", ["scene.tif", "scene.nc", "scene"])
def test_an_empty_file_is_an_error(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=rf"{name}: the file is empty"):
        open_cube(tmp_path / name)


@pytest.mark.parametrize(("name", "message"), [("a.nc", "not a netCDF file"), ("a.tif", "not a raster file")])
def test_a_file_of_another_kind_is_an_error(tmp_path, name, message):
    (tmp_path / name).write_text("wavelength,reflectance\n500,0.1\n")
    with pytest.raises(ValueError, match=message):
        open_cube(tmp_path / name)


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Address of a server on this machine, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

        def log_message(self, *parts: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()


def vrt(source: str) -> str:
    band = f'<VRTRasterBand dataType="Float32" band="1"><SimpleSource><SourceFilename>{source}</SourceFilename>'
    return f'<VRTDataset rasterXSize="8" rasterYSize="8">{band}</SimpleSource></VRTRasterBand></VRTDataset>'


def test_no_file_asks_a_server_or_reads_others(tmp_path, server):
    address, asked = server
    secret, scene = tmp_path / "secret.tif", tmp_path / "given" / "scene.tif"
    scene.parent.mkdir()
    write_raster(secret, np.ones((1, 8, 8), np.float32))
    window = (
        "<UpperLeftX>0</UpperLeftX><UpperLeftY>8</UpperLeftY><LowerRightX>8</LowerRightX><LowerRightY>0</LowerRightY>"
    )
    tiles = f'<Service name="TMS"><ServerUrl>{address}/${{z}}/${{x}}/${{y}}</ServerUrl></Service>'
    texts = {
        "local VRT": vrt(str(secret)),
        "VRT of a server": vrt(f"/vsicurl/{address}/other.tif"),
        "WMS": f"<GDAL_WMS>{tiles}<DataWindow>{window}</DataWindow><BandsCount>1</BandsCount></GDAL_WMS>",
        "WMTS": f"<GDAL_WMTS><GetCapabilitiesUrl>{address}/it</GetCapabilitiesUrl><Layer>x</Layer></GDAL_WMTS>",
    }
    for text in texts.values():
        scene.write_text(text)
        with pytest.raises(ValueError, match=r"scene\.tif: not a raster file .* gdal_translate"):
            open_cube(scene)
    scene.unlink()
    write_raster(scene, np.ones((1, 8, 8), np.float32))
    for suffix in (".ovr", ".msk", ".aux.xml"):
        beside = scene.with_name(scene.name + suffix)
        for name in (f"/vsicurl/{address}/other.tif", f"WMTS:{address}/it"):
            entry = f'<Metadata domain="OVERVIEWS"><MDI key="OVERVIEW_FILE">{name}</MDI></Metadata>'
            beside.write_text(f"<PAMDataset>{entry}</PAMDataset>" if suffix == ".aux.xml" else vrt(name))
            with pytest.raises(ValueError, match=r"scene\.tif: .*beside it names other files or servers"):
                open_cube(scene)
        beside.unlink()
    open_cube(scene).compute()
    assert asked == []


def test_a_label_of_pixels_in_another_folder_is_refused(tmp_path):
    secret, given = tmp_path / "secret", tmp_path / "given"
    secret.mkdir()
    given.mkdir()
    label = crism(secret)
    moved = given / label.name
    moved.write_bytes(
        label.read_bytes().replace(b'= "HSP', b'= "../secret/HSP').replace(b'=  "HSP', b'=  "../secret/HSP')
    )
    open_cube(label, reader="raster")
    with pytest.raises(ValueError, match=r"LBL: its pixels are in .*secret.*, outside its folder"):
        open_cube(moved, reader="raster")


@pytest.mark.parametrize("keep", [0.2, 0.5, 0.99])
def test_a_truncated_file_is_an_error_when_opened(tmp_path, keep):
    values = np.random.default_rng(0).random((4, 64, 64)).astype(np.float32)
    wavelengths = {"wavelength": [500.0, 600.0, 700.0, 800.0]}
    cube = xr.DataArray(values, dims=("wavelength", "y", "x"), coords=wavelengths, name="r")
    cube.to_netcdf(tmp_path / "four.nc")
    cube.to_netcdf(tmp_path / "three.nc", format="NETCDF3_64BIT")
    write_raster(tmp_path / "plain.tif", values)
    write_raster(tmp_path / "packed.tif", values, compress="deflate", tiled=True, blockxsize=16, blockysize=16)
    write_envi(tmp_path, values)
    for name in ("four.nc", "three.nc", "plain.tif", "packed.tif", "scene.img"):
        path = tmp_path / name
        open_cube(path).compute()
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * keep)])
        with pytest.raises(ValueError, match=rf"{name}: .*(truncated|not a raster)"):
            open_cube(path)


def test_a_file_that_may_not_be_read_is_an_error(tmp_path, monkeypatch):
    _, path = enmap_like(tmp_path / "scene.tif")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(PermissionError, match=r"scene\.tif: no permission to read"):
        open_cube(path)


def test_complex_numbers_and_a_variable_of_a_raster_are_errors(tmp_path):
    path = write_raster(tmp_path / "s.tif", np.ones((1, 3, 3), np.complex64))
    with pytest.raises(ValueError, match="complex numbers"):
        open_cube(path)
    with pytest.raises(ValueError, match="variable='r' is for netCDF"):
        open_cube(path, variable="r")


@pytest.mark.parametrize("row", [0, 1])
def test_a_cell_longer_than_any_number_is_an_error_in_one_line(tmp_path, row):
    lines = ["450,550,lai", "0.1,0.2,1", "0.3,0.2,1"]
    lines[row] = "1" * 200_000 + lines[row][3:]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"a line of 2000[0-9]+ characters is none of a table .*: check the file"):
        open_cube(tmp_path / "table.csv")
