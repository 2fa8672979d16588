"""The demo, on a smaller scene: what it promises to write and to print."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

import specinvert.cli.demo
from labelled import assert_close
from specinvert import load_inverter, open_cube
from specinvert.cli import main
from specinvert.cli.demo import PARAMETERS, run_demo

PNG = b"\x89PNG\r\n\x1a\n"


def test_the_demo_writes_what_it_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setitem(specinvert.cli.demo.SETTINGS, "search_seconds", 3.0)
    result = run_demo(tmp_path / "new" / "demo", n_samples=800, shape=(12, 16), say=said.append)
    assert [path.name for path in result.files] == ["training.nc", "scene.nc", "model.nc", "maps.nc", "maps.png"]
    assert sorted(path.name for path in result.files) == sorted(p.name for p in (tmp_path / "new" / "demo").iterdir())
    assert float(result.scores["nrmse"].mean()) < 0.4
    assert float(abs(result.scores["coverage_90"] - 0.9).max()) < 0.1
    assert result.summary is not None
    assert (result.summary.rmse < result.summary.baseline_rmse).all()
    assert len(said) == 2
    _, scene, model, maps_file, figure = result.files
    with xr.open_dataset(maps_file, decode_coords="all") as opened:
        maps = opened.load()
    assert maps.rio.crs.to_epsg() == 32633
    assert_close(maps, load_inverter(model).invert(open_cube(scene, chunks=None)))
    assert set(np.unique(maps["quality_flag"])) >= {0, 1}
    assert figure.read_bytes().startswith(PNG)


def test_the_demo_prints_errors_coverages_and_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(run_demo, n_samples=300, shape=(12, 16))
    monkeypatch.setitem(specinvert.cli.demo.SETTINGS, "search_seconds", 1.0)
    monkeypatch.setattr(specinvert.cli.demo, "run_demo", small)
    result = CliRunner().invoke(main, ["demo", "-o", str(tmp_path / "demo")])
    assert result.exit_code == 0
    assert len(result.stderr.splitlines()) == 2
    lines = [line.split() for line in result.stdout.splitlines()]
    for name in PARAMETERS:
        held_out, on_the_scene = (line[1:] for line in lines if line[:1] == [name])
        assert "NRMSE" in " ".join(held_out)
        assert 0.0 < float(on_the_scene[0]) < 1.0
        assert 50 < float(on_the_scene[1].rstrip("%")) <= 100
    assert "settings: K = " in result.stdout
    assert str(tmp_path / "demo" / "maps.png") in result.stdout
