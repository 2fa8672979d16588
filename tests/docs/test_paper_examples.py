"""The scripts of the paper's experiments, on tiny settings and data made here."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner
from scipy.io import savemat

SCRIPTS = Path(__file__).parents[2] / "examples" / "paper"


def script(name: str) -> ModuleType:
    if str(SCRIPTS) not in sys.path:
        sys.path.insert(0, str(SCRIPTS))
    return importlib.import_module(name)


def run(name: str, *arguments: object) -> None:
    result = CliRunner().invoke(script(name).main, [*map(str, arguments), "--workers", "1"], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def averages(path: Path, column: str) -> dict[tuple[str, str], float]:
    with path.open() as stream:
        return {
            (row["method"], row.get("function") or row["parameter"]): float(row[column])
            for row in csv.DictReader(stream)
        }


@pytest.mark.stops
def test_table2_ranks_latents_before_none_and_goes_on_where_it_stopped(tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    arguments = ("--quick", "--methods", "sir-1,gllim")
    run("table2", "-o", whole, *arguments)
    scores = averages(whole / "table2.csv", "average")
    for kind in "fgh":
        assert scores["hGLLiM-1", kind] < scores["MLE", kind] < scores["SIR-1", kind]
        assert scores["hGLLiM-BIC", kind] < scores["MLE", kind]

    log = (whole / "runs" / "table2.jsonl").read_bytes()
    (stopped / "runs").mkdir(parents=True)
    (stopped / "runs" / "table2.jsonl").write_bytes(log[: len(log) // 2])  # within a line
    run("table2", "-o", stopped, *arguments)
    for name in ("runs/table2.jsonl", "table2.csv", "table2.txt"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes()

    run("figures", "-o", whole, "--quick", "--figures", "latents")
    assert (whole / "runs" / "table2.jsonl").read_bytes() == log
    assert (whole / "figures.png").stat().st_size > 5000


@pytest.mark.stops
def test_a_run_keeps_what_it_had_when_it_is_stopped(tmp_path):
    common, synthetic = script("common"), script("synthetic")
    tasks = [synthetic.Trial("f", seed, "sir-1") for seed in range(3)]
    done: list[int] = []

    def work(task):
        if task.seed == 2 and len(done) == 2:
            raise KeyboardInterrupt
        done.append(task.seed)
        return {"seed": task.seed}

    log = tmp_path / "run.jsonl"
    with pytest.raises(KeyboardInterrupt):
        common.run_tasks(work, tasks, log, {})
    assert len(log.read_text().splitlines()) == 3
    done.append(-1)
    assert [record["seed"] for record in common.run_tasks(work, tasks, log, {})] == [0, 1, 2]
    assert done == [0, 1, -1, 2]
    with pytest.raises(ValueError, match="another run"):
        common.run_tasks(work, tasks, log, {"noise": 1})


def test_scores_are_those_of_all_errors_together():
    common = script("common")
    errors = [np.array([1.0, -3.0]), np.array([2.0, 5.0, 0.0])]
    scores = common.Scores.of([*(common.error_record(e, 2.5) for e in errors), {"failed": "so"}])
    together = np.abs(np.concatenate(errors))
    assert scores.average[0] == pytest.approx(together.mean())
    assert scores.deviation[0] == pytest.approx(together.std())
    assert (scores.extreme[0], scores.failed) == (40.0, 1)


@pytest.fixture
def faces_file(tmp_path):
    rng = np.random.default_rng(0)
    light, pan, tilt = rng.uniform(-1.7, 1.7, (3, 280))
    y, x = np.mgrid[-1:1:32j, -1:1:32j]
    shade = np.exp(-((x - 0.2 * pan[:, None, None]) ** 2 + (y - 0.2 * tilt[:, None, None]) ** 2))
    images = shade * (0.5 + 0.25 * light[:, None, None] * x)
    images[:, 0, 0] = 0.0
    path = tmp_path / "faces.mat"
    savemat(path, {"dataY": images.transpose(0, 2, 1).reshape(280, -1).T, "dataT": np.stack([light, pan, tilt])})
    return path


def test_table3_estimates_pose_better_with_the_light_as_a_latent(tmp_path, faces_file):
    run("table3", faces_file, "-o", tmp_path, "--quick", "--methods", "sir-1,gllim")
    scores = averages(tmp_path / "table3.csv", "average")
    for name in ("pan", "tilt"):
        assert scores["hGLLiM best L_w", name] < scores["MLE", name]
    faces = script("faces").read_faces(faces_file)
    assert (faces.parameters["pan"].min(), faces.parameters["pan"].max()) == (-75.0, 75.0)
    assert (tmp_path / "table3_reconstructions.png").stat().st_size > 5000
    savemat(faces_file, {"dataY": np.zeros((4, 4))})
    with pytest.raises(ValueError, match="has no dataT"):
        script("faces").read_faces.__wrapped__(faces_file)


@pytest.fixture
def constants_files(tmp_path):
    um = np.linspace(0.9, 4.3, 200)

    def k(centre):
        return 10 ** (-5 + 3 * np.exp(-(((um - centre) / 0.2) ** 2)))

    ices = {"re_Wrn08": 1.31 + 0 * um, "im_Wrn08": k(1.6), "re_co2ice": 1.4 + 0 * um, "im_co2ice": 0.01 * k(2.7)}
    dust = {"idx_rfr_rel": 1.5 + 0 * um, "idx_rfr_img": 0.005 + 0 * um}
    paths = tmp_path / "ices.nc", tmp_path / "dust.nc"
    xr.Dataset({n: ("wvl", v) for n, v in ices.items()}, coords={"wvl": um}).to_netcdf(paths[0])
    xr.Dataset({n: ("bnd", v) for n, v in dust.items()}, coords={"bnd": 1e-6 * um}).to_netcdf(paths[1])
    return paths


def test_table4_gains_from_latents_and_resumes(tmp_path, constants_files):
    arguments = (*constants_files, "-o", tmp_path, "--quick", "--methods", "sir-1,gllim", "--scene", 16)
    run("table4", *arguments)
    scores = averages(tmp_path / "table4.csv", "nrmse")
    mean = {name: np.mean([v for (m, _), v in scores.items() if m == name]) for name in ("MLE", "hGLLiM-2")}
    assert mean["hGLLiM-2"] < mean["MLE"]
    assert (tmp_path / "table4.png").stat().st_size > 5000
    log = tmp_path / "runs" / "table4.jsonl"
    before = log.read_bytes()
    assert json.loads(before.splitlines()[0])["spectra"] == 1500
    run("table4", *arguments[:-1], 0)
    assert log.read_bytes() == before


def test_a_scene_has_the_spectra_of_the_database(constants_files):
    polar = script("polar")
    constants = polar.read_constants(*constants_files)
    database = polar.make_database(*constants_files, 5, 0.0)
    np.testing.assert_allclose(polar.polar_spectra(constants, database), database["reflectance"], rtol=1e-12)
