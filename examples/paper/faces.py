"""The paper's face set: a head rendered under known pan, tilt and light (section "Robustly Retrieving Either Pose Or
Light From Face Images"), read from the MATLAB file of 32 x 32 images with standardised parameters.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from common import quiet
from scipy.io import loadmat

from specinvert import GLLiMInverter
from specinvert.figures.layout import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_TRAIN, N_TEST, SIDE, N_COMPONENTS = 597, 100, 16, 10
RANGES = {"light": (105.0, 255.0), "pan": (-75.0, 75.0), "tilt": (-10.0, 10.0)}
"""Ranges of the rows of the file's parameters, in order; pan and tilt are degrees."""
TARGETS = {"pose": ("pan", "tilt"), "light": ("light",)}
"""The two tasks; what is not wanted is hidden."""


@dataclass(frozen=True)
class Faces:
    """Images (n, 16 * 16), row by row, and each parameter (n,) in its own units."""

    images: np.ndarray
    parameters: dict[str, np.ndarray]
    digest: str

    def targets(self, name: str) -> np.ndarray:
        """Parameters (n, L_t) of one of :data:`TARGETS`."""
        return np.stack([self.parameters[parameter] for parameter in TARGETS[name]], axis=1)

    def split(self, repeat: int) -> tuple[np.ndarray, np.ndarray]:
        """Indices of 597 images to train and 100 to test (one in seven of fewer), drawn anew for each repeat."""
        n = len(self.images)
        n_test = N_TEST if n >= N_TRAIN + N_TEST else n // 7
        order = np.random.default_rng([2014, repeat]).permutation(n)
        return order[n_test : n_test + N_TRAIN], order[:n_test]


@lru_cache(maxsize=1)
def read_faces(path: Path) -> Faces:
    """Read `dataY` (1024, n), images column by column in 0 to 1, and `dataT` (3, n), standardised light, pan and tilt.

    Every second pixel is kept each way. The least and greatest values of each parameter are taken to be the ends of its
    range.

    Raises
    ------
    ValueError : the file has no such arrays.
    """
    content = loadmat(path)
    missing = [name for name in ("dataY", "dataT") if name not in content]
    if missing:
        raise ValueError(f"{path} has no {' and no '.join(missing)}: give the file with dataY and dataT")
    pixels, rows = content["dataY"], content["dataT"]
    side = 2 * SIDE
    if pixels.ndim != 2 or len(pixels) != side**2 or rows.shape != (len(RANGES), pixels.shape[1]):
        raise ValueError(
            f"{path} has dataY {pixels.shape} and dataT {rows.shape}; ({side**2}, n) and ({len(RANGES)}, n) are needed"
        )
    images = pixels.T.reshape(-1, side, side).transpose(0, 2, 1)[:, ::2, ::2].reshape(pixels.shape[1], -1)
    parameters = {
        name: low + (high - low) * (row - row.min()) / np.ptp(row)
        for (name, (low, high)), row in zip(RANGES.items(), rows, strict=True)
    }
    return Faces(
        np.ascontiguousarray(images, dtype=np.float64), parameters, hashlib.sha256(pixels.tobytes()).hexdigest()[:16]
    )


def varying_pixels(images: np.ndarray) -> np.ndarray:
    """Mask (D,) of the pixels that differ among images (n, D); the background of corners does not."""
    return np.ptp(images, axis=0) > 0


def draw_reconstructions(faces: Faces, start: str, count: int = 4) -> Figure:
    """Test images beside what the models make of them: pose estimated with L_w = 1, the latent varied, and L_w = 0."""
    train, test = faces.split(0)
    kept = varying_pixels(faces.images[train])
    with quiet():
        models = [
            GLLiMInverter(N_COMPONENTS, n, sigma="iso", tied_sigma=True, init=start, random_state=0).fit(
                _labelled(faces, train, kept), band_dim="pixel"
            )
            for n in (1, 0)
        ]
    chosen = _labelled(faces, test[:count], kept)
    found = models[0].invert(chosen, outputs=("mean", "latent"), band_dim="pixel")
    plain = models[1].invert(chosen, outputs=("mean",), band_dim="pixel")
    latent = xr.DataArray(np.linspace(-2.0, 2.0, 7)[:, None], dims=("w", "latent_dim"))
    names = list(TARGETS["pose"])
    varied = models[0].simulate(found[names], latent=latent).transpose("sample", "w", "pixel").values
    average = models[1].simulate(plain[names]).values
    best = models[0].simulate(found[names], latent=found["latent"]).values

    figure = new_figure(10.5, 1.15 * count + 0.5)
    axes = figure.subplots(count, 11, squeeze=False, gridspec_kw={"width_ratios": [1, 1.2, *[1] * 9]})
    for row, (line, index) in enumerate(zip(axes, test[:count], strict=True)):
        pan, tilt = (float(found[name][row]) for name in names)
        true = ", ".join(f"{faces.parameters[name][index]:.1f}" for name in names)
        line[1].text(
            0.5,
            0.5,
            f"pan {pan:.1f}°\ntilt {tilt:.1f}°\nw {float(found['latent'][row, 0]):.2f}\n(true {true})",
            ha="center",
            va="center",
            fontsize=8,
        )
        shown = [faces.images[index], None, best[row], *varied[row], average[row]]
        for axis, values in zip(line, shown, strict=True):
            axis.set_axis_off()
            if values is not None:
                axis.imshow(_picture(values, kept, faces.images[train]), cmap="gray", vmin=0, vmax=1)
    titles = ["test image", "estimates", "as estimated", *(f"w = {w:.1f}" for w in latent.values[:, 0]), "$L_w$ = 0"]
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=8)
    return figure


def _labelled(faces: Faces, rows: np.ndarray, kept: np.ndarray) -> xr.Dataset:
    pose = {name: ("sample", faces.parameters[name][rows], {"units": "degree"}) for name in TARGETS["pose"]}
    return xr.Dataset({"image": (("sample", "pixel"), faces.images[rows][:, kept]), **pose})


def _picture(values: np.ndarray, kept: np.ndarray, images: np.ndarray) -> np.ndarray:
    """A picture (16, 16) of all pixels or of those that vary; the others are what they always are."""
    whole = images[0].copy()
    whole[kept] = values[kept] if len(values) == len(kept) else values
    return whole.reshape(SIDE, SIDE)
