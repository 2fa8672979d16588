"""Training that was stopped goes on from its checkpoint to the same bits as one that never was."""

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

from labelled import make_training, refuses
from specinvert import GLLiMInverter
from specinvert.io.checkpoint import CheckpointFile

pytestmark = pytest.mark.stops

SETTINGS: dict[str, Any] = {"n_components": 3, "max_iter": 12, "tol": 0.0, "random_state": 0}


class Stop(Exception):
    """Raised in the middle of a run."""


def stop_at(label: str, iteration: int) -> Any:
    def progress(run: str, done: int, log_likelihood: float) -> None:
        if run == label and done == iteration:
            raise Stop

    return progress


def assert_same_bits(actual: GLLiMInverter, expected: GLLiMInverter) -> None:
    for name in ("pi", "c", "Gamma", "A", "b", "Sigma"):
        np.testing.assert_array_equal(getattr(actual.parameters_, name), getattr(expected.parameters_, name))
    np.testing.assert_array_equal(actual.log_likelihoods_, expected.log_likelihoods_)
    assert actual.n_removed_ == expected.n_removed_
    assert actual.bics_ == expected.bics_


@pytest.mark.parametrize("chunks", [None, 40])
@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"n_latent": 0}, "L_w = 0"),
        ({"n_latent": 2, "sigma": "diag", "tied_sigma": True}, "L_w = 2"),
        ({"n_latent": 1, "sigma": "full", "gamma": "iso"}, "L_w = 1"),
        ({"n_latent": 1, "n_init": 3}, "L_w = 1, start 2"),
        ({"n_latent": "bic", "max_latent": 2}, "L_w = 1"),
    ],
)
def test_a_stopped_training_resumes_to_the_same_bits(
    tmp_path: Path, settings: dict[str, Any], label: str, chunks: int | None
) -> None:
    training = make_training() if chunks is None else make_training().chunk(sample=chunks)
    path = tmp_path / "checkpoint.nc"
    with pytest.raises(Stop):
        GLLiMInverter(**SETTINGS, **settings).fit(training, checkpoint=path, progress=stop_at(label, 7))
    assert path.exists()
    done: list[tuple[str, int]] = []
    resumed = GLLiMInverter(**SETTINGS, **settings)
    resumed.fit(training, checkpoint=path, progress=lambda run, i, _: done.append((run, i)))
    assert_same_bits(resumed, GLLiMInverter(**SETTINGS, **settings).fit(training))
    assert done[0] == (label, 5)
    assert not path.exists()


def test_a_training_that_had_converged_is_not_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.nc"
    settings = {**SETTINGS, "tol": 0.5, "n_init": 2, "n_latent": 1}
    expected = GLLiMInverter(**settings).fit(make_training())
    with pytest.raises(Stop):
        GLLiMInverter(**settings).fit(make_training(), checkpoint=path, progress=stop_at("L_w = 1, start 2", 0))
    done: list[str] = []
    resumed = GLLiMInverter(**settings)
    resumed.fit(make_training(), checkpoint=path, progress=lambda run, *_: done.append(run))
    assert set(done) == {"L_w = 1, start 2"}
    assert_same_bits(resumed, expected)


@pytest.mark.parametrize("change", [{"n_components": 2}, {"sigma": "diag"}, {"max_iter": 13}])
def test_a_checkpoint_of_other_settings_or_data_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "checkpoint.nc"
    with pytest.raises(Stop):
        GLLiMInverter(n_latent=0, **SETTINGS).fit(make_training(), checkpoint=path, progress=stop_at("L_w = 0", 5))
    with refuses(ValueError, str(path), "another training", "remove it"):
        GLLiMInverter(n_latent=0, **{**SETTINGS, **change}).fit(make_training(), checkpoint=path)
    with refuses(ValueError, str(path), "another training", "remove it"):
        GLLiMInverter(n_latent=0, **SETTINGS).fit(make_training(seed=3), checkpoint=path)
    assert path.exists()


def test_a_file_that_is_no_checkpoint_is_refused_and_kept(tmp_path: Path) -> None:
    for name, content in (("text.nc", b"hello"), ("empty.nc", b"")):
        path = tmp_path / name
        path.write_bytes(content)
        with refuses(ValueError, str(path), "not a readable training checkpoint"):
            GLLiMInverter(n_latent=0, **SETTINGS).fit(make_training(), checkpoint=path)
        assert path.read_bytes() == content
    other = tmp_path / "other.nc"
    with netCDF4.Dataset(other, "w") as file:
        file.title = "something else"
    with refuses(ValueError, str(other), "not one of specinvert"):
        CheckpointFile(other)


def test_a_checkpoint_in_a_folder_that_does_not_exist_is_refused_before_training(tmp_path: Path) -> None:
    with refuses(FileNotFoundError, "does not exist"):
        GLLiMInverter(n_latent=0, **SETTINGS).fit(make_training(), checkpoint=tmp_path / "nowhere" / "checkpoint.nc")
