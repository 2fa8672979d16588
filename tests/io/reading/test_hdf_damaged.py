"""Damaged EMIT, PACE and PRISMA products: one clear line each, whatever is missing or contradicts itself."""

from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import pytest

from hdf_products import write_emit, write_pace, write_prisma
from specinvert.io.reading.open import open_cube

Change = Callable[[Path], object]
PRODUCTS: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "emit": ("EMIT_L2A_RFL_001.nc", write_emit, "xarray.open_dataset"),
    "pace": ("PACE_OCI.nc", write_pace, "xarray.open_dataset"),
    "prisma": ("PRS_L2D_STD.he5", write_prisma, "h5py.File"),
}
DAMAGED = {
    "half": (lambda whole: whole[: len(whole) // 2], "damaged or truncated|damaged, truncated"),
    "all but the end": (lambda whole: whole[:-9], "damaged or truncated|damaged, truncated"),
    "text": (lambda whole: b"sample,500\n1,0.2\n", "not a netCDF file|not a readable PRISMA product"),
    "empty": (lambda whole: b"", "the file is empty"),
}


def made(folder: Path, kind: str) -> Path:
    name, write, _ = PRODUCTS[kind]
    write(folder / name)
    return folder / name


def without(name: str) -> Change:
    def change(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            del file[name]

    return change


def in_unit(variable: str) -> Change:
    def change(path: Path) -> None:
        with netCDF4.Dataset(path, "a") as file:
            file[f"sensor_band_parameters/{variable}"].units = "parsec"

    return change


def with_wavelengths(variable: str, dim: str, values: list[float]) -> Change:
    def change(path: Path) -> None:
        without(f"sensor_band_parameters/{variable}")(path)
        with netCDF4.Dataset(path, "a") as file:
            parameters = file["sensor_band_parameters"]
            parameters.createDimension(dim, len(values))
            parameters.createVariable(variable, "f4", (dim,))[:] = values

    return change


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("emit", without("sensor_band_parameters"), "no group 'sensor_band_parameters'"),
        ("emit", without("location"), "no group 'location'"),
        ("emit", without("sensor_band_parameters/wavelengths"), "lists no wavelengths, only fwhm"),
        ("emit", without("location/lat"), "group 'location' lacks lat"),
        ("emit", without("reflectance"), "no cube .*only nothing"),
        ("emit", with_wavelengths("wavelengths", "fewer", [500, 600]), "2 wavelengths for 3 bands"),
        ("emit", in_unit("wavelengths"), "'parsec' .*not understood"),
        ("pace", without("geophysical_data"), "no group 'geophysical_data'"),
        ("pace", without("sensor_band_parameters"), "no group 'sensor_band_parameters'"),
        ("pace", without("navigation_data"), "no group 'navigation_data'"),
        ("pace", without("geophysical_data/rhos"), "no cube over 'wavelength_3d' .*only l2_flags"),
        ("pace", without("sensor_band_parameters/wavelength_3d"), "has no wavelengths of the cubes"),
        ("pace", without("navigation_data/longitude"), "group 'navigation_data' lacks longitude"),
        ("pace", with_wavelengths("wavelength_3d", "wavelength_3d", [555]), "1 wavelengths for 2 bands"),
        ("pace", in_unit("wavelength_3d"), "'parsec' .*not understood"),
    ],
)
def test_a_damaged_layout_is_one_clear_error(tmp_path: Path, kind: str, change: Change, message: str) -> None:
    path = made(tmp_path, kind)
    change(path)
    with pytest.raises(ValueError, match=rf"{path.name}: .*{message}") as caught:
        open_cube(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", DAMAGED)
@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, kind: str, damage: str) -> None:
    path = made(tmp_path, kind)
    spoil, message = DAMAGED[damage]
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"{path.name}: .*({message})") as caught:
        open_cube(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_file_that_may_not_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = made(tmp_path, kind)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(PRODUCTS[kind][2], refuse)
    with pytest.raises(PermissionError, match=rf"{path.name}: no permission to read"):
        open_cube(path, reader=kind)
