"""What files hold of maps whose types, indexes, attributes and chunks no file has as they are."""

import datetime
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import rasterio
import xarray as xr

from labelled import assert_close, fitted, make_cube, make_truth, refuses
from specinvert import save_maps

FORMATS = ("maps.nc", "maps.zarr")


def table(**coords: Any) -> xr.Dataset:
    """Estimates of five sites."""
    return xr.Dataset({"water": ("site", np.arange(5.0))}, coords=coords, attrs={"Conventions": "CF-1.11"})


def stored(maps: xr.Dataset, path: Path) -> xr.Dataset:
    """The maps as xarray finds them in a new file of them."""
    save_maps(maps, path)
    with xr.open_dataset(path, engine="zarr" if path.suffix == ".zarr" else "netcdf4") as opened:
        return opened.load()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("given", "found"),
    [
        (pd.Categorical(["a", None, "b", "a", "c"]), ["a", "", "b", "a", "c"]),
        (pd.array(["a", None, "b", "a", "c"], dtype="string"), ["a", "", "b", "a", "c"]),
        (np.array([b"a", b"bc", b"", b"d", b"e"]), ["a", "bc", "", "d", "e"]),
        (pd.interval_range(0, 5), ["(0, 1]", "(1, 2]", "(2, 3]", "(3, 4]", "(4, 5]"]),
        (pd.period_range("2000", periods=5, freq="M"), ["2000-01", "2000-02", "2000-03", "2000-04", "2000-05"]),
        (pd.array([1, None, 3, 4, 5], dtype="Int64"), [1.0, np.nan, 3.0, 4.0, 5.0]),
        (pd.array([1, 2, 3, 4, 5], dtype="Int64"), [1, 2, 3, 4, 5]),
        (pd.array([True, None, False, True, True], dtype="boolean"), [1.0, np.nan, 0.0, 1.0, 1.0]),
        (np.arange(5, dtype=np.longdouble), [0.0, 1.0, 2.0, 3.0, 4.0]),
        (np.arange(5, dtype="f2"), [0.0, 1.0, 2.0, 3.0, 4.0]),
        (np.arange(5, dtype=">f8"), [0.0, 1.0, 2.0, 3.0, 4.0]),
        (
            pd.date_range("2000-01-01T02", periods=5, tz="Europe/Paris"),
            np.arange("2000-01-01T01", "2000-01-06T01", 24, dtype="M8[h]"),
        ),
        (
            np.array([datetime.date(2000, 1, day) for day in range(1, 6)]),
            np.arange("2000-01-01", "2000-01-06", dtype="M8[D]"),
        ),
    ],
    ids=str,
)
def test_coordinates_of_types_that_files_lack_are_spelled_in_those_they_have(
    tmp_path: Path, name: str, given: Any, found: Any
) -> None:
    maps = table(kind=("site", given))
    before = maps["kind"].dtype
    again = stored(maps, tmp_path / name)
    wanted = np.asarray(found)
    if wanted.dtype.kind == "U":
        assert list(map(str, again["kind"].values)) == found
    else:
        np.testing.assert_array_equal(again["kind"].values, wanted)
        assert again["kind"].dtype.kind == wanted.dtype.kind
    assert maps["kind"].dtype == before


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"a": 1}, '{"a": 1}'),
        (datetime.datetime(2020, 1, 2, 3), "2020-01-02 03:00:00"),
        (np.datetime64("2020-01-02"), "2020-01-02"),
        (True, 1),
        (np.bool_(False), 0),
        (1j, "1j"),
        (b"text", "text"),
        (2**70, str(2**70)),
        ([[1, 2], [3]], "[[1, 2], [3]]"),
        (["a", "b"], ["a", "b"]),
        (np.float32(0.5), 0.5),
        ("", ""),
    ],
    ids=str,
)
def test_attributes_become_numbers_and_text(tmp_path: Path, name: str, given: Any, found: Any) -> None:
    maps = table(kind=("site", np.arange(5), {"note": given, "nothing": None, "a/b": "c", 3: "d"}))
    maps["water"].attrs["note"] = maps.attrs["note"] = given
    again = stored(maps, tmp_path / name)
    for holder in (again, again["kind"], again["water"]):
        value = holder.attrs["note"]
        assert (list(value) if isinstance(found, list) else value) == found
    assert "nothing" not in again["kind"].attrs
    assert (again["kind"].attrs["a_b"], again["kind"].attrs["3"]) == ("c", "d")


@pytest.mark.parametrize("name", FORMATS)
def test_units_that_a_file_gave_to_times_do_not_hinder_their_encoding(tmp_path: Path, name: str) -> None:
    days = pd.date_range("2000", periods=5)
    attrs = {"units": "days since 1970-01-01", "calendar": "standard", "long_name": "day"}
    again = stored(table(site=("site", days, attrs), age=("site", days - days[0], {"units": "days"})), tmp_path / name)
    np.testing.assert_array_equal(again["site"].values, days.values)
    assert again["site"].attrs["long_name"] == "day"


@pytest.mark.parametrize("name", [*FORMATS, "maps.tif"])
@pytest.mark.parametrize(
    "places",
    [
        pd.date_range("2000", periods=5),
        xr.date_range("2000", periods=5, calendar="noleap", use_cftime=True),
        list("abcde"),
    ],
    ids=["dates", "cftime", "text"],
)
def test_maps_along_an_axis_that_is_no_place_are_saved(tmp_path: Path, name: str, places: Any) -> None:
    maps = fitted(1).invert(make_cube().assign_coords(y=places))
    if name.endswith(".tif"):
        save_maps(maps, tmp_path / name)
        with rasterio.open(tmp_path / name) as file:
            np.testing.assert_allclose(file.read(1), maps["water"].values)
    else:
        again = stored(maps, tmp_path / name)
        np.testing.assert_array_equal(again["water"].values, maps["water"].values)
        np.testing.assert_array_equal(again["y"].values, maps["y"].values)


@pytest.mark.parametrize("name", [*FORMATS, "maps.tif"])
def test_what_no_file_holds_is_refused_before_anything_is_computed(tmp_path: Path, name: str) -> None:
    cube = make_cube()
    maps = fitted(1).invert(cube)

    def fail(block: np.ndarray) -> np.ndarray:
        raise AssertionError("computed")

    lazy = maps.assign(late=(("y", "x"), da.zeros((5, 6)).map_blocks(fail, dtype=float)))
    unknown = da.from_array(np.arange(6.0), chunks=3)
    cases: list[tuple[xr.Dataset, tuple[str, ...]]] = [
        (lazy.stack(pixel=("y", "x")), ("MultiIndex", "maps.unstack('pixel')", "reset_index")),
        (lazy.isel(y=slice(0)), ("empty", "'y': 0")),
        (lazy.assign(odd=maps["water"] * 1j), ("'odd'", "complex128")),
        (lazy.assign_coords(mixed=("y", np.array([1, "a", None, 2.5, (1,)], dtype=object))), ("'mixed'", "tuple")),
        (xr.Dataset({"rows": ("x", unknown[unknown > 1])}), ("'rows'", "unknown size along 'x'")),
    ]
    for given, said in cases:
        with refuses(ValueError, name, *said):
            save_maps(given, tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [*FORMATS, "maps.tif"])
def test_floats_of_any_size_and_byte_order_are_saved_as_single_or_double(tmp_path: Path, name: str) -> None:
    maps = fitted(1).invert(make_cube())[["water", "dust"]]
    for dtype, width in (("f2", np.float32), (">f4", np.float32), (">f8", np.float64), ("longdouble", np.float64)):
        for given in (maps.astype(dtype), maps.chunk(y=2).astype(dtype)):
            save_maps(given, tmp_path / name)
            with xr.open_dataset(tmp_path / name, engine="rasterio" if name.endswith("tif") else None) as again:
                found = again["band_data"][0] if name.endswith("tif") else again["water"]
                assert found.dtype.newbyteorder("=") == width
                np.testing.assert_array_equal(found.values, maps["water"].astype(dtype).values.astype(width))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("rows", [(0, 2, 0, 3), (1, 4)])
def test_empty_and_uneven_chunks_are_saved(tmp_path: Path, name: str, rows: tuple[int, ...]) -> None:
    values = da.from_array(make_cube().values, chunks=(rows, (6,), (8,)))
    maps = fitted(1).invert(make_cube().copy(data=values))
    again = stored(maps, tmp_path / name)
    assert_close(again[list(maps.data_vars)].reset_coords(drop=True), maps.reset_coords(drop=True))
    if name.endswith(".zarr"):
        assert again["water"].encoding["chunks"] == (max(rows), 6)


def test_truths_of_any_kind_beside_maps_go_through_a_file(tmp_path: Path) -> None:
    maps = fitted(1).invert(make_cube()).assign_coords(truth=make_truth()["water"].variable)
    again = stored(maps, tmp_path / "maps.nc")
    np.testing.assert_array_equal(again["truth"].values, maps["truth"].values)
