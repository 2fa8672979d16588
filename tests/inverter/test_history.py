"""What the history of maps tells, known parameters and noise in every form, and requests that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from labelled import WAVELENGTHS, assert_close, fitted, make_cube, make_truth, refuses
from specinvert import save_maps, select_bands
from specinvert.cubes.labels import earlier_history, with_history


def told(maps: xr.Dataset) -> str:
    """What the last line says of the inversion."""
    return str(maps.attrs["history"].splitlines()[-1].partition(" invert")[2])


def without_units(micrometres: bool = True) -> xr.DataArray:
    cube = make_cube().drop_attrs()
    return cube.assign_coords(wavelength=("band", WAVELENGTHS / (1000.0 if micrometres else 1.0)))


@pytest.mark.parametrize("chunks", [None, {"y": 2}])
@pytest.mark.parametrize("whole", [False, True])
def test_maps_keep_the_history_of_the_cube_before_their_own_line(whole: bool, chunks: Any, tmp_path: Path) -> None:
    cube = make_cube().assign_attrs(history="2020 opened")
    cube = select_bands(cube if chunks is None else cube.chunk(chunks), exclude=[(600, 620)], drop=False)
    data = cube.to_dataset().assign_attrs(history="2021 merged") if whole else cube
    maps = fitted().invert(data)
    *earlier, opened, selected, line = maps.attrs["history"].split("\n")
    assert earlier == (["2021 merged"] if whole else [])
    assert opened == "2020 opened"
    assert "select_bands: 7 of 8 bands" in selected
    assert line.endswith(" invert")
    save_maps(maps, tmp_path / "maps.nc", history="command")
    with xr.open_dataset(tmp_path / "maps.nc") as saved:
        assert saved.attrs["history"].startswith(maps.attrs["history"])


def test_histories_of_any_kind_become_one_text_without_repetition() -> None:
    assert earlier_history({}, {"history": ""}) == ""
    assert earlier_history({"history": "a"}, {"history": "a"}, {"history": "b\nc"}) == "a\nb\nc"
    assert earlier_history({"history": np.array(["a", "b"])}, {"history": ["c"]}) == "a\nb\nc"
    first, line = with_history({"history": ["a"], "title": "t"}, "done")["history"].split("\n")
    assert first == "a"
    assert line.endswith(" done")


@pytest.mark.parametrize(("micrometres", "unit"), [(True, "um"), (False, "nm")])
def test_history_says_which_unit_wavelengths_without_units_were_taken_for(micrometres: bool, unit: str) -> None:
    cube = without_units(micrometres)
    assert told(fitted().invert(cube)) == f"; wavelengths without units taken as {unit}"
    noise = xr.full_like(cube[0, 0], 0.01)
    said = f"; noise of each band beyond training; wavelengths of noise without units taken as {unit}"
    assert told(fitted().invert(make_cube(), noise)) == said


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({}, ""),
        ({"dst": 0.5}, "; known: dst is no parameter and was left out"),
        ({"dst": 0.5, "quality": ("y", np.zeros(5))}, "; known: dst, quality are no parameters and were left out"),
    ],
)
@pytest.mark.parametrize("as_coordinates", [False, True])
def test_history_names_what_of_a_known_dataset_is_no_parameter(
    as_coordinates: bool, others: dict[str, Any], said: str
) -> None:
    known = make_truth()[["water"]].assign(others)
    known = known.set_coords(list(others)) if as_coordinates else known
    assert told(fitted().invert(make_cube(), known=known)) == f"; water known in each pixel{said}"


def test_parameters_among_variables_and_coordinates_of_a_dataset_count_alike() -> None:
    known = make_truth()
    expected = fitted().invert(make_cube(), known=known)
    assert (expected["water_std"] == 0).all()
    assert_close(fitted().invert(make_cube(), known=known.set_coords("dust")), expected)
    with refuses(ValueError, "known 'dust' is in"):
        fitted().invert(
            make_cube(), known=known.set_coords("dust").assign_coords(dust=known["dust"].assign_attrs(units="%"))
        )


@pytest.mark.parametrize(
    ("bounds", "same", "said"),
    [
        ((0.25, None), (0.25, np.inf), "dust known above 0.25"),
        ((None, np.array(0.5)), (-np.inf, 0.5), "dust known below 0.5"),
        ((np.array(0.25), np.float32(0.5)), (0.25, 0.5), "dust known within 0.25 and 0.5"),
        ((xr.zeros_like(make_truth()["dust"]) + 0.25, None), (0.25, np.nan), "dust known within bounds of each pixel"),
    ],
)
def test_none_is_an_open_end_of_an_interval(bounds: Any, same: Any, said: str) -> None:
    maps = fitted().invert(make_cube(), known={"dust": bounds})
    assert told(maps) == f"; {said}"
    assert_close(maps, fitted().invert(make_cube(), known={"dust": same}))
    assert float(maps["dust"].min()) >= 0.25 or float(maps["dust"].max()) <= 0.5


@pytest.mark.parametrize(
    ("outputs", "named"),
    [
        (["mean", "mode"], "'mode' cannot"),
        (["modes2"], "'modes2' cannot"),
        (["hdi90", "std", "draws5", "entropy"], "'hdi90', 'draws5', 'entropy' cannot"),
    ],
)
def test_outputs_that_an_interval_forbids_are_refused_by_the_names_asked_for(outputs: list[str], named: str) -> None:
    with refuses(ValueError, named, "out of outputs", "give the parameter a value"):
        fitted().invert(make_cube(), known={"dust": (0.1, 0.5)}, outputs=outputs)


def rounded(share: float) -> xr.DataArray:
    """Noise of pixels whose coordinates are off by a share of the step of 30 m."""
    noise = xr.full_like(make_truth()["dust"], 0.03).drop_attrs()
    return noise.assign_coords(y=noise["y"] + 30.0 * share, x=noise["x"].astype(np.float32))


@pytest.mark.parametrize("share", [1e-6, 1e-3, -1e-2])
def test_noise_of_pixels_whose_coordinates_differ_by_rounding_is_that_of_the_pixels(share: float) -> None:
    expected = fitted().invert(make_cube(), rounded(0.0))
    maps = fitted().invert(make_cube(), rounded(share))
    assert_close(maps, expected)
    np.testing.assert_array_equal(maps["y"], make_cube()["y"])


@pytest.mark.parametrize("share", [0.1, 1.0, np.nan])
def test_noise_of_pixels_elsewhere_is_refused(share: float) -> None:
    with refuses(ValueError, "noise has other coordinates along 'y'", "reindex"):
        fitted().invert(make_cube(), rounded(share))


def test_coordinates_that_are_no_numbers_must_be_equal() -> None:
    cube = make_cube().assign_coords(x=list("abcdef"))
    noise = xr.full_like(cube[..., 0], 0.03).drop_attrs()
    assert_close(fitted().invert(cube, noise), fitted().invert(cube, noise.drop_vars("x")))
    with refuses(ValueError, "noise has other coordinates along 'x'"):
        fitted().invert(cube, noise.assign_coords(x=list("abcdeg")))
