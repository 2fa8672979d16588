"""Settings that a fit finds by itself, and what it says of itself on samples held out."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import specinvert
from commands import run, succeed
from labelled import PARAMETERS, QUICK, make_responsibilities, make_training, refuses
from specinvert import GLLiMInverter, load_inverter
from specinvert.inverter import automatic
from specinvert.model import Summary

SEEDED: dict[str, Any] = {"random_state": 0, "tol": 1e-3}


@cache
def found() -> GLLiMInverter:
    """An inverter with nothing set."""
    return GLLiMInverter(**SEEDED).fit(make_training(300, noise=0.01))


def test_with_nothing_set_errors_are_near_the_best_and_intervals_hold_what_they_say() -> None:
    test = make_training(400, seed=9, noise=0.01)
    scores = found().evaluate(test)
    by_hand = [
        GLLiMInverter(k, n_latent=1, sigma=sigma, **SEEDED).fit(make_training(300, noise=0.01)).evaluate(test)["nrmse"]
        for k, sigma in ((3, "iso"), (8, "iso"), (8, "diag"))
    ]
    assert float(scores["nrmse"].mean()) < 1.1 * min(float(nrmse.mean()) for nrmse in by_hand)
    assert abs(scores["coverage_90"] - 0.9).max() < 0.06


def test_the_summary_is_of_the_estimates_that_users_get() -> None:
    summary, test = found().summary_, make_training(2000, seed=9, noise=0.01)
    scores = found().evaluate(test)
    np.testing.assert_allclose(summary.rmse, scores["rmse"], rtol=0.25)
    np.testing.assert_allclose(summary.recalibrated, 0.9, atol=0.05)
    assert (summary.n_samples, summary.n_held_out, summary.n_parts) == (300, 300, 5)
    assert summary.names == tuple(PARAMETERS)
    assert summary.baseline in ("ridge", "pls")
    assert (summary.rmse < summary.baseline_rmse).all()


def test_the_summary_is_read_in_a_few_lines() -> None:
    summary = found().summary_
    text = str(summary)
    assert len(text.splitlines()) < 12
    for part in ("water", "NRMSE", "90 % intervals hold", "recalibrated", summary.baseline, summary.chosen, "g m-2"):
        assert part in text
    assert f"<pre>{text[:20]}" in summary._repr_html_()
    assert len(summary.tried) > 5
    best = max(trial["score"] for trial in summary.tried)
    assert any(trial["settings"] == summary.chosen and trial["score"] > best - 0.06 for trial in summary.tried)


def test_a_model_file_keeps_summary_and_trials(tmp_path: Path) -> None:
    found().to_netcdf(tmp_path / "model.nc")
    again = load_inverter(tmp_path / "model.nc")
    assert json.dumps(again.summary_.to_attrs()) == json.dumps(found().summary_.to_attrs())
    assert repr(again) == repr(found())
    assert again.n_components == "auto"
    told = succeed("info", tmp_path / "model.nc")
    assert found().summary_.chosen in told
    assert all(str(trial["settings"]) in told for trial in found().summary_.tried)


def test_numbers_are_taken_as_they_are_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "Search", lambda *_: pytest.fail("searched"))
    inverter = GLLiMInverter(n_latent=1, **QUICK).fit(make_training())
    assert (inverter.n_components_, inverter.n_latent_, inverter.parameters_.constraints.sigma) == (3, 1, "iso")
    assert inverter.summary_ is None
    assert inverter.model_.recalibration is None


def test_a_fit_of_given_settings_is_assessed_where_that_is_asked_for() -> None:
    inverter = GLLiMInverter(n_latent=1, **QUICK).fit(make_training(), assess=True)
    alone = GLLiMInverter(n_latent=1, **QUICK).fit(make_training())
    assert isinstance(inverter.summary_, Summary)
    assert inverter.summary_.tried == ()
    assert inverter.model_.recalibration is not None
    assert inverter.model_.recalibration.source == "training"
    np.testing.assert_array_equal(inverter.parameters_.A, alone.parameters_.A)


def test_a_search_alone_is_not_assessed_where_that_is_refused() -> None:
    inverter = GLLiMInverter("auto", n_latent=1, **{**SEEDED, "max_iter": 5, "tol": 0.1}).fit(
        make_training(), assess=False
    )
    assert inverter.summary_ is None
    assert inverter.n_latent_ == 1


@pytest.mark.parametrize(
    ("change", "arguments", "part"),
    [
        ({}, {"parameters": []}, "there are no parameters"),
        ({}, {"responsibilities": make_responsibilities(make_training())}, "responsibilities start one fit"),
        ({"search_seconds": -1.0}, {}, "search_seconds=-1.0"),
        ({"n_components": "best"}, {}, "n_components='best'"),
    ],
)
def test_a_search_refuses_what_it_cannot_do(change: dict[str, Any], arguments: dict[str, Any], part: str) -> None:
    with refuses(ValueError, part):
        GLLiMInverter(**change).fit(make_training(), **arguments)


def test_a_constant_band_is_told_before_any_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automatic, "Search", lambda *_: pytest.fail("searched"))
    data = make_training()
    data["reflectance"][:, 2] = 0.25
    with refuses(ValueError, "constant band", "610 nm"):
        GLLiMInverter().fit(data)


def test_a_lazy_training_set_finds_what_one_in_memory_does() -> None:
    settings = {**SEEDED, "sigma": "iso", "n_latent": 1, "n_ensemble": 1, "max_iter": 10, "tol": 0.1}
    data = make_training(120)
    here, lazy = (GLLiMInverter(**settings).fit(one) for one in (data, data.chunk(sample=40)))
    assert here.summary_.chosen == lazy.summary_.chosen
    np.testing.assert_allclose(here.summary_.rmse, lazy.summary_.rmse, rtol=1e-6)


def test_unusual_summaries_say_what_to_beware_of() -> None:
    data = make_training(150)
    data["noise"] = "sample", np.random.default_rng(0).uniform(-1.0, 1.0, 150)
    settings = QUICK | {"n_components": 1}
    beware = " ".join(GLLiMInverter(n_latent=0, **settings).fit(data, assess=True).summary_.beware)
    assert "hardly tell" in beware
    assert "150 samples is uncertain by" in beware


def test_train_with_nothing_set_ends_with_errors_coverage_and_the_next_command(tmp_path: Path) -> None:
    rows = make_training(80)
    table = {f"{w:g}": rows["reflectance"].values[:, i] for i, w in enumerate(rows["wavelength"].values)}
    table |= {name: rows[name].values for name in PARAMETERS}
    text = "\n".join(
        [",".join(table), *(",".join(map(repr, map(float, row))) for row in zip(*table.values(), strict=True))]
    )
    (tmp_path / "table.csv").write_text(text)
    result = run("train", tmp_path / "table.csv", "-o", tmp_path / "model.nc", "--search-seconds", 0.5)
    assert result.exit_code == 0, result.stderr
    for part in ("recalibrated", "settings: K = ", "next: specinvert invert", "NRMSE"):
        assert part in result.stdout
    with xr.open_dataset(tmp_path / "model.nc") as opened:
        assert "recalibration_level" in opened
    assert specinvert.load_inverter(tmp_path / "model.nc").summary_ is not None
