"""Latents on a grid (Bishop, Svensen and Williams, 1998, *GTM: the generative topographic mapping*)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .arrays import Array
from .chunks import ChunkSource
from .initialize import SAMPLE_ROWS, Features, NearestCentre, Start
from .scaling import Scaling


def regular_grid(shape: Sequence[int]) -> Array:
    """Nodes (prod(shape), q) of a regular grid over [-1, 1]^q."""
    axes = [np.linspace(-1.0, 1.0, n) if n > 1 else np.zeros(1) for n in shape]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def basis(nodes: Array, centres: Array, width: float) -> Array:
    """Latents (K, q + m + 1) of nodes (K, q): coordinates, Gaussians of a ``width`` about centres (m, q), and one."""
    squares = ((nodes[:, None] - centres) ** 2).sum(axis=2)
    return np.concatenate([nodes, np.exp(-0.5 * squares / width**2), np.ones((len(nodes), 1))], axis=1)


@dataclass(frozen=True, eq=False)
class PrincipalGrid:
    """A start that lays nodes (K, q) on the plane of the spectra's first q principal components, two deviations wide.

    Each spectrum begins in the component of the nearest node.
    """

    nodes: Array

    def start(self, source: ChunkSource, scaling: Scaling) -> Start:
        """Responsibilities of the data of a source, found on a sample of it.

        Raises ValueError where the spectra have fewer bands, or the sample fewer rows, than the grid has sides.
        """
        sample = source.sample(SAMPLE_ROWS).scaled(scaling)
        if self.nodes.shape[1] > min(sample.spectra.shape):
            raise ValueError(
                f"a grid of {self.nodes.shape[1]} sides needs as many principal components, {len(sample)} spectra of "
                f"{sample.spectra.shape[1]} bands have {min(sample.spectra.shape)}: give a grid of fewer sides"
            )
        mean = sample.weights @ sample.spectra / sample.weights.sum()
        weighted = np.sqrt(sample.weights / sample.weights.sum())[:, None] * (sample.spectra - mean)
        _, deviations, axes = np.linalg.svd(weighted, full_matrices=False)
        q = self.nodes.shape[1]
        axes = axes * np.where(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)] < 0.0, -1.0, 1.0)[:, None]
        centres = mean + 2.0 * self.nodes @ (deviations[:q, None] * axes[:q])
        return NearestCentre(Features(None, np.ones(len(mean))), centres)
