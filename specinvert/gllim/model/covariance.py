"""The covariance structures.

==========  ===========  ==========================
name        compact      covariance
==========  ===========  ==========================
``iso``     (K,)         one variance for all bands
``diag``    (K, D)       one variance a band
``full``    (K, D, D)    unconstrained
``block``   (K, P)       zero between groups of bands
==========  ===========  ==========================

P is the number of pairs of bands of one group. The constraints are those that close section "General Hybrid GLLiM-EM
Algorithm" of the paper.
"""

from __future__ import annotations

import numbers
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import Array, accumulate_squares
from .residuals import TILE_ROWS, Basis, Expanded, Expected, LogJoint
from .structure import FULL, SINGULAR, Axes, Correlated, Structure

AUTO = "auto"
"""The ``sigma_blocks`` that training finds."""


class Diagonal(Structure):
    """What iso and diag share."""

    rows = 6 * TILE_ROWS

    @abstractmethod
    def variances(self, compact: Array, n_bands: int) -> Array:
        """Variances of the bands as (K, D), or (K, 1) where they are equal."""

    def dense(self, compact: Array, n_bands: int) -> Array:
        return self.variances(compact, n_bands)[:, :, None] * np.eye(n_bands)

    def axes(self, compact: Array, n_bands: int) -> Axes:
        for variances in self.variances(compact, n_bands):
            yield np.broadcast_to(variances, (n_bands,)).copy(), None

    def select(self, compact: Array, bands: NDArray[np.intp], n_bands: int) -> tuple[Structure, Array]:
        return DIAG, self.variances(compact, n_bands)[:, bands]

    def rescale(self, compact: Array, scale: Array) -> tuple[Structure, Array]:
        return DIAG, self.variances(compact, len(scale)) * scale**2

    def add_noise(self, compact: Array, noise: Array, n_bands: int) -> tuple[Structure, Array]:
        if noise.ndim == 2:
            return super().add_noise(compact, noise, n_bands)
        sums = self.variances(compact, n_bands) + noise
        return DIAG, np.broadcast_to(sums, (len(compact), n_bands)).copy()

    def trace(self, compact: Array, variances: Array) -> Array:
        return np.asarray((variances / self.variances(compact, len(variances))).sum(axis=1))

    def solve(self, compact: Array, columns: Array) -> Array:
        return columns * (1.0 / self.variances(compact, columns.shape[1]))[:, :, None]

    def whiten(self, compact: Array, columns: Array) -> Array:
        return columns * np.sqrt(1.0 / self.variances(compact, columns.shape[1]))[:, :, None]

    def log_joint(self, compact: Array, regression: Array, basis: Basis, expected: Expected) -> LogJoint:
        precision = 1.0 / self.variances(compact, regression.shape[1])
        same = precision.shape[1] == 1
        return Expanded(np.broadcast_to(precision, regression.shape[:2]), regression, basis, expected.signal, same)


class Diag(Diagonal):
    """``Sigma_k`` diagonal."""

    name = "diag"
    text = "a variance for each band"
    dims = ("component", "band")

    def variances(self, compact: Array, n_bands: int) -> Array:
        return compact

    def groups(self, n_bands: int) -> Sequence[NDArray[np.intp]]:
        return list(np.arange(n_bands)[:, None])

    def n_free(self, n_bands: int) -> int:
        return n_bands

    def compact(self, dense: Array) -> Array:
        return np.diagonal(dense, axis1=1, axis2=2)

    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        accumulate_squares(weights, spectra, moments)

    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        return (n_components, n_bands)

    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        explained = np.einsum("kdl,kld->kd", maps, 2.0 * xy - xx @ maps.transpose(0, 2, 1))
        variance: Array = yy - mean**2 - explained
        return variance

    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        return np.maximum(compact, ratio * variance)

    def singular(self, compact: Array, variance: Array) -> NDArray[np.bool_]:
        return ~np.all(compact > SINGULAR * variance, axis=1)

    def log_det(self, compact: Array, n_bands: int) -> Array:
        return np.asarray(np.log(compact).sum(axis=1))


class Iso(Diagonal):
    """``Sigma_k = sigma_k^2 I_D``."""

    name = "iso"
    text = "one variance for all bands"
    dims = ("component",)
    isotropic = True

    @classmethod
    def common_scale(cls, variance: Array) -> Array:
        return np.full_like(variance, variance.mean())

    def variances(self, compact: Array, n_bands: int) -> Array:
        return compact[:, None]

    def n_free(self, n_bands: int) -> int:
        return 1

    def compact(self, dense: Array) -> Array:
        return np.asarray(np.diagonal(dense, axis1=1, axis2=2).mean(axis=1))

    def select(self, compact: Array, bands: NDArray[np.intp], n_bands: int) -> tuple[Structure, Array]:
        return self, compact

    def rescale(self, compact: Array, scale: Array) -> tuple[Structure, Array]:
        return super().rescale(compact, scale) if np.ptp(scale) else (self, compact * scale[0] ** 2)

    def add_noise(self, compact: Array, noise: Array, n_bands: int) -> tuple[Structure, Array]:
        return super().add_noise(compact, noise, n_bands) if noise.ndim else (self, compact + noise)

    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        moments += np.einsum("nd,nd->n", spectra, spectra) @ weights

    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        return (n_components,)

    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        n_bands = mean.shape[1]
        explained = np.einsum("kdl,kld->k", maps, 2.0 * xy - xx @ maps.transpose(0, 2, 1))
        variance: Array = (yy - np.einsum("kd,kd->k", mean, mean) - explained) / n_bands
        return variance

    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        return np.maximum(compact, ratio * variance.mean())

    def singular(self, compact: Array, variance: Array) -> NDArray[np.bool_]:
        return ~(compact > SINGULAR * variance.mean())

    def log_det(self, compact: Array, n_bands: int) -> Array:
        return n_bands * np.log(compact)


class Block(Correlated):
    """``Sigma_k`` zero between groups of bands, unconstrained within them.

    ``labels`` (D,) say which group a band is in. The compact form holds the groups' covariances one after the other, in
    the order in which the groups first occur, each row by row.
    """

    name = "block"
    text = "a covariance for each group of bands"
    dims = ("component", "block_entry")
    needs_blocks = True

    def __init__(self, labels: Sequence[int] | NDArray[np.intp]) -> None:
        names = np.asarray(labels)
        _, first, group = np.unique(names, return_index=True, return_inverse=True)
        self.blocks = tuple(names.tolist())
        self.members = [np.flatnonzero(group == g) for g in np.argsort(first)]
        sizes = np.array([len(bands) for bands in self.members], dtype=np.intp)
        ends = np.cumsum(np.concatenate([[0], sizes**2]))
        self.parts = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.row = np.concatenate([np.repeat(bands, len(bands)) for bands in self.members])
        self.column = np.concatenate([np.tile(bands, len(bands)) for bands in self.members])
        self.start, self.rank, self.size = (np.empty(len(names), dtype=np.intp) for _ in range(3))
        for bands, start in zip(self.members, ends[:-1], strict=True):
            self.start[bands], self.rank[bands], self.size[bands] = start, np.arange(len(bands)), len(bands)

    @classmethod
    def of(cls, blocks: Any) -> Structure:
        return cls(blocks)

    @classmethod
    def read_blocks(cls, given: Any) -> Any:
        """The group (D,) of each band as integers from zero, in the order in which they first occur; or "auto"."""
        if isinstance(given, str) and given == AUTO:
            return AUTO
        if given is None or isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or not len(given):
            raise ValueError(
                f"sigma='block' with sigma_blocks={given!r}: give the group of each band, lists of the bands of each "
                "group, or 'auto'"
            )
        whole = all(isinstance(label, numbers.Integral) for label in given)
        labels = map(int, given) if whole else _labels_of_lists(given)
        order: dict[int, int] = {}
        return tuple(order.setdefault(label, len(order)) for label in labels)

    def groups(self, n_bands: int) -> Sequence[NDArray[np.intp]]:
        return self.members

    def split(self, compact: Array) -> Iterator[tuple[NDArray[np.intp], Array]]:
        for bands, part in zip(self.members, self.parts, strict=True):
            yield bands, compact[:, part].reshape(len(compact), len(bands), len(bands))

    def _join(self, covariances: Iterable[Array]) -> Array:
        return np.concatenate([c.reshape(len(c), -1) for c in covariances], axis=1)

    def n_free(self, n_bands: int) -> int:
        return sum(FULL.n_free(len(bands)) for bands in self.members)

    def dense(self, compact: Array, n_bands: int) -> Array:
        covariances = np.zeros((len(compact), n_bands, n_bands))
        covariances[:, self.row, self.column] = compact
        return covariances

    def compact(self, dense: Array) -> Array:
        return dense[:, self.row, self.column]

    def select(self, compact: Array, bands: NDArray[np.intp], n_bands: int) -> tuple[Structure, Array]:
        kept = Block(np.array(self.blocks)[bands])
        row, column = bands[kept.row], bands[kept.column]
        return kept, compact[:, self.start[row] + self.rank[row] * self.size[row] + self.rank[column]]

    def rescale(self, compact: Array, scale: Array) -> tuple[Structure, Array]:
        return self, compact * (scale[self.row] * scale[self.column])

    def add_noise(self, compact: Array, noise: Array, n_bands: int) -> tuple[Structure, Array]:
        if noise.ndim == 2:
            return super().add_noise(compact, noise, n_bands)
        return self, compact + np.where(self.row == self.column, np.broadcast_to(noise, n_bands)[self.row], 0.0)

    def add_second_moments(self, spectra: Array, weights: Array, moments: Array) -> None:
        for bands, own in self.split(moments):
            FULL.add_second_moments(np.ascontiguousarray(spectra[:, bands]), weights, own)

    def moment_shape(self, n_components: int, n_bands: int) -> tuple[int, ...]:
        return (n_components, len(self.row))

    def residual(self, yy: Array, mean: Array, maps: Array, xy: Array, xx: Array) -> Array:
        return self._join(FULL.residual(own, mean[:, g], maps[:, g], xy[:, :, g], xx) for g, own in self.split(yy))

    def clip(self, compact: Array, variance: Array, ratio: float) -> Array:
        return self._join(FULL.clip(own, variance[g], ratio) for g, own in self.split(compact))


def _labels_of_lists(given: Iterable[Any]) -> Iterable[int]:
    try:
        groups = [[int(band) for band in group] for group in given]
    except (TypeError, ValueError):
        raise ValueError(f"sigma_blocks={given!r} must be integers, or lists of integers") from None
    owner = {band: number for number, group in enumerate(groups) for band in group}
    counted = sum(map(len, groups))
    if sorted(owner) != list(range(counted)):
        raise ValueError(
            f"the lists of sigma_blocks hold {counted} bands, {len(owner)} of them distinct: each band from 0 to D - 1 "
            "must be in one group"
        )
    return (owner[band] for band in range(counted))


DIAG, ISO = Diag(), Iso()
