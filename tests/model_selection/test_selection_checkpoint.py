"""A stopped selection goes on where it was, to the same table, and leaves nothing behind."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import xarray as xr

from labelled import QUICK, make_training, refuses
from specinvert.model_selection import grid as grid_fits
from specinvert.model_selection.select import Selection, select_model

pytestmark = pytest.mark.stops

SETTINGS = {name: value for name, value in QUICK.items() if name != "n_components"}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the best by|.* fits failed")
        yield


def chosen(path: Path | None, data: xr.Dataset | None = None, **options: Any) -> Selection:
    own = {"n_components": [2, 3], "n_latent": [0, 1], "refit": False, **SETTINGS, **options}
    return select_model(make_training() if data is None else data, **own, checkpoint=path)


def stop_after(n_fits: int) -> Any:
    def progress(label: str, done: int, count: int) -> None:
        if done == n_fits:
            raise KeyboardInterrupt

    return progress


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The K and L_w of every fit from now on."""
    fits: list[tuple[int, int]] = []
    train = grid_fits.train

    def counting(source: Any, settings: Any, *rest: Any) -> Any:
        fits.append((settings.n_components, settings.n_latent))
        return train(source, settings, *rest)

    monkeypatch.setattr(grid_fits, "train", counting)
    return fits


@pytest.mark.parametrize("lazy", [False, True])
def test_a_stopped_selection_goes_on_without_the_fits_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lazy: bool
) -> None:
    data = make_training().chunk(sample=70) if lazy else make_training()
    whole = chosen(None, data)
    path = tmp_path / "fits.json"
    with dask.config.set(scheduler="synchronous"), pytest.raises(KeyboardInterrupt):
        chosen(path, data, progress=stop_after(3))
    assert [entry.name for entry in tmp_path.iterdir()] == ["fits.json"]
    fits = counted(monkeypatch)
    told: list[tuple[str, int, int]] = []
    again = chosen(path, data, progress=lambda *event: told.append(event))
    assert {name: array.dtype for name, array in again.table.items()} == {
        name: array.dtype for name, array in whole.table.items()
    }
    assert len(fits) == 1
    assert [event[1:] for event in told] == [(4, 4)]
    xr.testing.assert_identical(again.table.drop_vars("seconds"), whole.table.drop_vars("seconds"))
    assert again.best == whole.best
    assert not list(tmp_path.iterdir())


def test_another_grid_over_the_same_data_takes_up_what_it_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fits.json"
    with dask.config.set(scheduler="synchronous"), pytest.raises(KeyboardInterrupt):
        chosen(path, n_components=[2], n_latent=[0], progress=stop_after(1))
    fits = counted(monkeypatch)
    chosen(path, n_components=[2, 4], n_latent=[0])
    assert fits == [(4, 0)]


def test_fits_that_failed_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, train = tmp_path / "fits.json", grid_fits.train

    def failing(source: Any, settings: Any, *rest: Any) -> Any:
        if settings.n_components == 3:
            raise MemoryError("no room")
        return train(source, settings, *rest)

    monkeypatch.setattr(grid_fits, "train", failing)
    with dask.config.set(scheduler="synchronous"), pytest.raises(KeyboardInterrupt):
        chosen(path, progress=stop_after(4))
    assert len(json.loads(path.read_text())["fits"]) == 2
    monkeypatch.setattr(grid_fits, "train", train)
    fits = counted(monkeypatch)
    chosen(path)
    assert sorted(fits) == [(3, 0), (3, 1)]


def test_a_fit_that_memory_does_not_hold_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    train = grid_fits.train

    def failing(source: Any, settings: Any, *rest: Any) -> Any:
        if settings.n_latent == 1:
            raise MemoryError("no room")
        return train(source, settings, *rest)

    monkeypatch.setattr(grid_fits, "train", failing)
    table = chosen(None).table
    assert table["failure"].values.tolist() == [["", "not enough memory: no room"]] * 2
    np.testing.assert_array_equal(np.isfinite(table["bic"]), [[True, False]] * 2)


@pytest.mark.parametrize(
    ("changes", "data_seed"), [({"tol": 0.5}, 0), ({"held_out": 0.4}, 0), ({"random_state": 5}, 0), ({}, 9)]
)
def test_a_checkpoint_of_other_data_or_settings_is_refused_before_any_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], data_seed: int
) -> None:
    path = tmp_path / "fits.json"
    with dask.config.set(scheduler="synchronous"), pytest.raises(KeyboardInterrupt):
        chosen(path, progress=stop_after(1))
    kept = path.read_text()
    fits = counted(monkeypatch)
    with refuses(ValueError, f"{path}: finished fits of other data or settings, none of this grid: remove it"):
        chosen(path, make_training(seed=data_seed), **changes)
    assert not fits
    assert path.read_text() == kept


@pytest.mark.parametrize("content", ["", "x", "[1]", '{"title": "notes", "fits": {}}'])
def test_another_kind_of_file_is_refused_and_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.json"
    path.write_text(content)
    with refuses(ValueError, f"{path}: not a readable file of finished fits"):
        chosen(path)
    assert path.read_text() == content
