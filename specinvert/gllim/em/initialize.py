"""First responsibilities: k-means or a mixture on parameters, spectra or both, or given ones.

Clusters are found on a sample of the training set and give any chunk its responsibilities, so a start needs no more
memory than a chunk. Clusters see every parameter and band divided by its own deviation; the joint start lets the
block of parameters and the block of spectra weigh the same.

Latents on a grid (Bishop, Svensen and Williams, 1998, *GTM: the generative topographic mapping*)."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from ..core import Array
from ..model import Scaling
from .chunks import Chunk, ChunkSource

SAMPLE_ROWS = 50_000
KMEANS_TRIES = 10
_FILTERS = threading.Lock()


class Start(Protocol):
    """Gives the rows of a chunk, in scaled units, their first responsibilities (n, K)."""

    def responsibilities(self, chunk: Chunk) -> Array:
        """Rows that sum to one."""


class GivenResponsibilities:
    """The responsibilities that the chunk carries."""

    def responsibilities(self, chunk: Chunk) -> Array:
        """As given."""
        if chunk.responsibilities is None:
            raise ValueError("the training data carry no responsibilities")
        return np.asarray(chunk.responsibilities, dtype=np.float64)


@dataclass(frozen=True)
class Features:
    """Weights (L_t,) and (D,) that make parameters and spectra comparable; None leaves the block out."""

    parameters: Array | None
    spectra: Array | None

    @classmethod
    def of(cls, name: str, parameters_variance: Array, spectra_variance: Array) -> Features:
        """Features of a start, given the variances in scaled units."""
        n_t = len(parameters_variance)
        use_parameters = n_t > 0 and name != "kmeans-spectra"
        use_spectra = n_t == 0 or name in ("kmeans-joint", "kmeans-spectra")
        return cls(
            1.0 / np.sqrt(parameters_variance * n_t) if use_parameters else None,
            np.full(len(spectra_variance), 1.0 / np.sqrt(spectra_variance.sum())) if use_spectra else None,
        )

    def __call__(self, chunk: Chunk) -> Array:
        """Features (n, m) of the rows."""
        columns = []
        if self.parameters is not None:
            columns.append(chunk.parameters * self.parameters)
        if self.spectra is not None:
            columns.append(chunk.spectra * self.spectra)
        return np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class NearestCentre:
    """Responsibility one for the nearest of the centres (K, m)."""

    features: Features
    centres: Array

    def responsibilities(self, chunk: Chunk) -> Array:
        """One-hot rows; the expanded square serves, being compared within a row only."""
        distance = (self.centres**2).sum(axis=1) - 2.0 * self.features(chunk) @ self.centres.T
        return np.eye(len(self.centres))[distance.argmin(axis=1)]


@dataclass(frozen=True)
class FittedMixture:
    """Responsibilities of a Gaussian mixture fitted by scikit-learn."""

    features: Features
    mixture: Any

    def responsibilities(self, chunk: Chunk) -> Array:
        """Posterior probabilities of the mixture's components."""
        if len(chunk) == 0:
            return np.zeros((0, self.mixture.n_components))
        return np.asarray(self.mixture.predict_proba(self.features(chunk)))


def find_start(
    name: str,
    n_components: int,
    source: ChunkSource,
    scaling: Scaling,
    variances: tuple[Array, Array],
    seed: int,
) -> Start:
    """The start of a name that the setting ``init`` may be; ``variances`` of parameters and spectra in scaled units.

    ``kmeans`` and ``gmm`` see the parameters, or the spectra where there are no parameters.
    """
    features = Features.of(name, *variances)
    sample = source.sample(SAMPLE_ROWS).scaled(scaling)
    rows = features(sample)
    if name == "gmm":
        kind = "full" if features.spectra is None else "diag"
        mixture = GaussianMixture(n_components, covariance_type=kind, random_state=seed)
        with _start_is_enough():
            return FittedMixture(features, mixture.fit(rows))
    means = KMeans(n_components, n_init=KMEANS_TRIES, random_state=seed)
    with _start_is_enough():
        # fewer distinct rows than clusters: the empty ones are removed and counted by the first M-step
        means.fit(rows, sample_weight=sample.weights)
    return NearestCentre(features, means.cluster_centers_)


@contextmanager
def _start_is_enough() -> Iterator[None]:
    """Ignore scikit-learn's word that a start has not converged.

    Python's filters are those of the whole process: members of a committee, in threads, take turns to change them.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning, module=r"sklearn\.")
        yield


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
