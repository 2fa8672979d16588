"""Bars of long work: lines where there is no terminal, one bar a thread, and an end where the work is to stop."""

import io
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from labelled import QUICK, fitted, make_cube, make_training
from specinvert import GLLiMInverter, ProgressBars, save_maps, select_model
from specinvert import progress as progress_module
from specinvert.io.writing import BlockProgress
from specinvert.progress import duration, person_looks, reporting


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (59.4, "59 s"), (185, "3:05 min"), (7800, "2:10:00 h"), (-1.0, "0 s")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_training_selection_and_writing_are_told_in_lines() -> None:
    lines: list[str] = []
    with ProgressBars(lines.append) as bars:
        for iteration in range(3):
            bars.training(3)("L_w = 0", iteration, 12.5)
        bars.selection("K = 2", 1, 1)
        bars.blocks(BlockProgress(1, 4, 30, 100, 0.0))
        bars.blocks(BlockProgress(4, 4, 100, 100, 50.0))
    assert lines[0] == "EM, L_w = 0: iteration 1 of 3, log-likelihood 12.5, at most ? left"
    assert lines[1].startswith("EM, L_w = 0: iteration 3 of 3, log-likelihood 12.5, at most ")
    assert lines[2].startswith("fit 1 of 1: K = 2, about ")
    assert "30% block 1 of 4" in lines
    assert lines[-1] == "100% block 4 of 4, 50 pixels/s, 0 s left"


def test_bars_are_drawn_and_taken_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with ProgressBars() as bars:
        GLLiMInverter(n_latent=0, **QUICK).fit(make_training(), progress=bars.training(QUICK["max_iter"]))
        bars.say("meanwhile")
        save_maps(fitted().invert(make_cube().chunk(y=2)), tmp_path / "maps.nc", progress=bars.blocks)
    told = stderr.getvalue()
    assert "EM, L_w = 0: iteration 1 of " in told
    assert "\rmeanwhile\n" in told
    assert "100% |" in told
    assert told.endswith("\r")
    assert not told.rsplit("\r", 2)[1].strip()


class Terminal(io.StringIO):
    """A stderr at which a person looks."""

    def isatty(self) -> bool:
        """True."""
        return True


@pytest.mark.parametrize(
    ("stderr", "progress", "drawn"),
    [
        *((Terminal(), None, True), (Terminal(), False, False), (Terminal(), lambda *_: None, False)),
        *((io.StringIO(), None, False), (io.StringIO(), True, True)),
    ],
)
def test_bars_are_shown_where_a_person_looks_unless_told_otherwise(
    stderr: io.StringIO, progress: Any, drawn: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress_module, "UNASKED_SECONDS", 0.0)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)
    told = []
    for work in (
        lambda: GLLiMInverter(n_latent=0, **QUICK).fit(make_training(), progress=progress),
        lambda: select_model(make_training(), (1, 2), (0,), progress=progress, refit=False, tol=0.0, max_iter=2),
        lambda: save_maps(fitted().invert(make_cube().chunk(y=2)), tmp_path / "maps.nc", progress=progress),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            work()
        told.append(stderr.getvalue())
        stderr.truncate(0)
    assert ["EM, L_w = 0: iteration" in told[0], "fit 2 of 2" in told[1], "100% |" in told[2]] == [drawn] * 3
    assert all(told) is drawn


def test_bars_that_nobody_asked_for_wait_and_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = Terminal()
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setattr(sys, "stderr", stderr)
    GLLiMInverter(n_latent=0, **QUICK).fit(make_training())
    assert stderr.getvalue().strip() == ""
    assert person_looks()
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert not person_looks()
    with pytest.raises(TypeError, match="progress=3 must be a function"), reporting(3, lambda bars: bars.blocks):
        pass


def test_every_thread_that_fits_has_a_bar_of_its_own() -> None:
    lines: list[str] = []
    with ProgressBars(lines.append) as bars:
        progress = bars.training(9)
        threads = [threading.Thread(target=progress, args=(f"member {n}, L_w = 0", 0, 0.0)) for n in (1, 2)]
        for thread in threads:
            thread.start()
            thread.join()
    assert [line.partition(":")[0] for line in lines] == ["EM, member 1, L_w = 0", "EM, member 2, L_w = 0"]


def test_work_that_is_to_stop_stops() -> None:
    stop, lines = threading.Event(), list[str]()
    with ProgressBars(lines.append, stop) as bars:
        bars.training(9)("L_w = 0", 0, 0.0)
        stop.set()
        with pytest.raises(KeyboardInterrupt):
            bars.training(9)("L_w = 0", 1, 0.0)
    assert len(lines) == 1
