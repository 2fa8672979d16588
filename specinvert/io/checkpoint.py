"""Checkpoints, written whole: of a training, the state of each EM run in a netCDF file; of a grid, its fits in JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

from ..gllim.em import Checkpoint, State
from ..gllim.model import Constraints, GLLiMParameters
from .atomic import NETCDF_LOCK, atomic_path, check_target

_TITLE = "specinvert training checkpoint"
_FITS_TITLE = "specinvert finished fits"
_ARRAYS = ("pi", "c", "Gamma", "A", "b", "Sigma")


class CheckpointFile(Checkpoint):
    """Keeps states of EM runs in a file.

    Parameters
    ----------
    path : the file; taken up where it exists.
    every : iterations between two writes; the last state of a run is always written.

    Raises
    ------
    ValueError : the file exists and is no checkpoint.
    """

    def __init__(self, path: str | os.PathLike[str], every: int = 5) -> None:
        self.path = check_target(path)
        self.every = every
        self._fingerprint = ""
        self._states: dict[str, State] = {}
        if self.path.exists():
            with NETCDF_LOCK:
                self._read()

    def begin(self, fingerprint: str) -> None:
        """Take up the states of the same training; ValueError where the file is of another."""
        if self._states and fingerprint != self._fingerprint:
            raise ValueError(
                f"{self.path}: a checkpoint of another training (other data or settings): remove it to start anew"
            )
        self._fingerprint = fingerprint

    def load(self, label: str) -> State | None:
        """The last state kept of a run."""
        return self._states.get(label)

    def keep(self, label: str, state: State, last: bool) -> None:
        """Keep the state, and write all states where it is time."""
        self._states[label] = state
        if last or len(state.log_likelihoods) % self.every == 0:
            with NETCDF_LOCK, atomic_path(self.path) as temporary:
                self._write(temporary)

    def of_member(self, number: int) -> CheckpointFile:
        """The checkpoint of a committee's member: this one for the first, a file beside it for the others."""
        return self if number == 0 else CheckpointFile(self._member_path(number), self.every)

    def remove(self, members: int = 1) -> None:
        """Delete the files of all members: the training is done."""
        for number in range(members):
            self._member_path(number).unlink(missing_ok=True)

    def _member_path(self, number: int) -> Path:
        return self.path.with_name(self.path.name + (f".{number}" if number else ""))

    def _write(self, temporary: Path) -> None:
        with netCDF4.Dataset(temporary, "w") as file:
            file.title = _TITLE
            file.fingerprint = self._fingerprint
            for number, (label, state) in enumerate(self._states.items()):
                group = file.createGroup(f"run_{number}")
                group.label = label
                group.state = json.dumps(
                    {
                        "n_latent": state.theta.n_latent,
                        "constraints": asdict(state.theta.constraints),
                        "removed_at": state.removed_at,
                        "n_asked": state.n_asked,
                        "converged": state.converged,
                        "layout": {name: _layout(array) for name, array in state.theta.arrays().items()},
                    }
                )
                for name, array in {**state.theta.arrays(), "log_likelihoods": np.array(state.log_likelihoods)}.items():
                    dims = tuple(f"{name}_{axis}" for axis in range(array.ndim))
                    for dim, size in zip(dims, array.shape, strict=True):
                        group.createDimension(dim, size)
                    group.createVariable(name, "f8", dims)[:] = array

    def _read(self) -> None:
        try:
            with netCDF4.Dataset(self.path) as file:
                file.set_auto_mask(False)
                if getattr(file, "title", None) != _TITLE:
                    raise ValueError("not one of specinvert")
                self._fingerprint = file.fingerprint
                self._states = {group.label: _state(group) for group in file.groups.values()}
        except (OSError, RuntimeError, ValueError, KeyError, AttributeError) as error:
            raise ValueError(f"{self.path}: not a readable training checkpoint: {error}") from None


def _layout(array: np.ndarray) -> list[int]:
    """The axes from the outermost in memory to the innermost: products round by it, and bits are to be the same."""
    return sorted(range(array.ndim), key=lambda axis: -array.strides[axis])


def _state(group: Any) -> State:
    described = json.loads(group.state)
    arrays = {name: np.array(group.variables[name][:], dtype=np.float64) for name in (*_ARRAYS, "log_likelihoods")}
    log_likelihoods = arrays.pop("log_likelihoods").tolist()
    for name, axes in described.pop("layout", {}).items():
        arrays[name] = np.ascontiguousarray(arrays[name].transpose(axes)).transpose(np.argsort(axes))
    constraints = Constraints(**described.pop("constraints"))
    theta = GLLiMParameters(**arrays, n_latent=described.pop("n_latent"), constraints=constraints)
    return State(theta, log_likelihoods, **described)


class FinishedFits:
    """Keeps what is known of finished fits in a file.

    Parameters
    ----------
    path : the file; taken up where it exists.

    Raises
    ------
    ValueError : the file exists and is of another kind.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_target(path)
        self._fits: dict[str, Any] = self._read() if self.path.exists() else {}

    def begin(self, names: Collection[str]) -> None:
        """Take up the fits of these names; ValueError where the file holds others only."""
        if self._fits and not set(names) & set(self._fits):
            raise ValueError(
                f"{self.path}: finished fits of other data or settings, none of this grid: remove it to start anew"
            )

    def load(self, name: str) -> Mapping[str, Any] | None:
        """What was kept of a fit."""
        return self._fits.get(name)

    def keep(self, name: str, fit: Mapping[str, Any]) -> None:
        """Keep what is known of a fit, of strings, numbers, lists and dictionaries, and write all."""
        self._fits[name] = dict(fit)
        with atomic_path(self.path) as temporary:
            temporary.write_text(json.dumps({"title": _FITS_TITLE, "fits": self._fits}, indent=1), encoding="utf-8")

    def remove(self) -> None:
        """Delete the file: all is done."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        try:
            held = json.loads(self.path.read_text(encoding="utf-8"))
            if held["title"] != _FITS_TITLE:
                raise ValueError("another kind of file")
            return dict(held["fits"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path}: not a readable file of finished fits: {error}") from None
