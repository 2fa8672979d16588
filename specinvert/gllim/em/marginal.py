"""One M-step of the marginal EM (Appendix B): the start of the general EM where there are latents.

Affine regression from parameters to spectra (M-regression-step), then PPCA of the residuals (M-residual-step,
without the stray 1/N). The leading eigenvectors of each residual covariance C_k are found from products
C_k V alone, each a sum over chunks, so that no D x D array is formed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..core import Array
from ..model import STRUCTURES, Constraints, GLLiMParameters, Scaling, Structure
from .chunks import Chunk, ChunkSource
from .initialize import Start
from .maximization import Fixed, Floor, Kept, assemble, maximization
from .statistics import Accumulator, SufficientStatistics

logger = logging.getLogger(__name__)

EIGENPAIR_TOLERANCE = 1e-12
MAX_PRODUCTS = 200
SMALLEST_BASIS = 96


def start_statistics(start: Start, structure: Structure, prior: Fixed, chunk: Chunk) -> SufficientStatistics:
    """Sums for a first M-step straight from responsibilities, latents having their prior moments in each component."""
    weights = start.responsibilities(chunk) * chunk.weights[:, None]
    n_t, n_bands, n_w = chunk.parameters.shape[1], chunk.spectra.shape[1], prior.dimension
    accumulator = Accumulator(structure, np.zeros_like(prior.covariance), prior.mean, n_t, n_bands)
    accumulator.add(chunk, weights, np.zeros((len(chunk), n_w, weights.shape[1])))
    sums = accumulator.statistics()
    sums.xx[:, n_t:, n_t:] += sums.r[:, None, None] * prior.covariance
    return sums


def marginal_maximization(
    source: ChunkSource,
    scaling: Scaling,
    start: Start,
    fixed: Fixed,
    constraints: Constraints,
    floor: Floor,
) -> tuple[GLLiMParameters, Kept]:
    """Theta with isotropic, distinct Sigma_k and maps from responsibilities, and which components were kept."""
    distinct = replace(
        constraints,
        sigma="iso",
        tied_sigma=False,
        sigma_blocks=None,
        tied_maps=False,
        intercept=True,
        fixed=tuple(name for name in constraints.fixed if name != "Sigma"),
    )
    n_t, n_w, n_bands = len(floor.parameters), fixed.dimension, len(floor.spectra)
    n_components = len(fixed.mean)
    supervised = replace(Fixed.standard(n_components, 0), parts=fixed.prior_parts)
    iso = STRUCTURES["iso"]
    step = partial(start_statistics, start, iso, supervised)
    sums = source.sum(step, scaling, n_components * (n_t + 1))
    regression, kept = maximization(sums, supervised, distinct, floor)
    values, vectors, trace = leading_residuals(source, scaling, start, regression, np.flatnonzero(kept), n_w)
    noise = np.maximum(trace - values.sum(axis=1), 0.0) / (n_bands - n_w)
    noise = iso.clip(noise, floor.spectra, floor.ratio)
    if floor.ratio == 0.0:
        singular = iso.singular(noise, floor.spectra)
        if singular.all():
            raise ValueError(
                f"the residuals of all {len(noise)} components have no noise beyond {n_w} latent dimensions: "
                "use fewer latents, fewer components, or reg_covar > 0"
            )
        kept[np.flatnonzero(kept)[singular]] = False
        regression = regression.keep(~singular)
        values, vectors, noise = values[~singular], vectors[~singular], noise[~singular]
    spread = vectors * np.sqrt(np.maximum(values - noise[:, None], 0.0))[:, None, :]
    return with_latents(replace(regression, Sigma=noise), fixed.keep(kept), spread), kept


def with_latents(regression: GLLiMParameters, fixed: Fixed, spread: Array) -> GLLiMParameters:
    """Theta of a regression and what latents add to its residuals: A_w Gamma_w A_w' = spread spread'."""
    maps_w = spread @ np.linalg.inv(np.linalg.cholesky(fixed.covariance))
    intercept = regression.b - np.einsum("kdl,kl->kd", maps_w, fixed.mean)
    return assemble(replace(regression, b=intercept), fixed, maps_w)


@dataclass(frozen=True)
class _ResidualProduct:
    """Sums r_k (K,), r_nk |u|^2 (K,) and r_nk u u' V_k (K, D, p) over residuals u."""

    r: Array
    trace: Array
    product: Array

    def __add__(self, other: _ResidualProduct) -> _ResidualProduct:
        return _ResidualProduct(self.r + other.r, self.trace + other.trace, self.product + other.product)


def _residual_product(
    start: Start,
    theta: GLLiMParameters,
    kept: np.ndarray[tuple[int], np.dtype[np.intp]],
    basis: Array,
    chunk: Chunk,
) -> _ResidualProduct:
    weights = (start.responsibilities(chunk) * chunk.weights[:, None])[:, kept]
    trace, product = np.zeros(len(basis)), np.zeros(basis.shape)
    for k, directions in enumerate(basis):
        rows = np.flatnonzero(weights[:, k] > 0.0)
        r = weights[rows, k]
        residual = chunk.spectra[rows] - chunk.parameters[rows] @ theta.A[k].T - theta.b[k]
        trace[k] = r @ np.einsum("nd,nd->n", residual, residual)
        product[k] = residual.T @ (r[:, None] * (residual @ directions))
    return _ResidualProduct(weights.sum(axis=0), trace, product)


def leading_residuals(
    source: ChunkSource,
    scaling: Scaling,
    start: Start,
    theta: GLLiMParameters,
    kept: np.ndarray[tuple[int], np.dtype[np.intp]],
    n_leading: int,
) -> tuple[Array, Array, Array]:
    """Leading eigenvalues (K, p), eigenvectors (K, D, p) and trace (K,) of C_k = sum_n (r_nk / r_k) u u'.

    Block Krylov spaces with full orthogonalisation, restarted from the leading Ritz vectors when they grow large;
    all components advance together, one pass over the data a block. Signs make the largest entry positive.
    """
    n_bands = theta.n_bands
    largest = min(n_bands, max(SMALLEST_BASIS, 8 * n_leading))
    first = np.random.default_rng(0).standard_normal((n_bands, n_leading))
    block = np.repeat(np.linalg.qr(first)[0][None], theta.n_components, axis=0)
    basis = np.empty((theta.n_components, n_bands, 0))
    images = basis
    for _ in range(MAX_PRODUCTS):
        sums = source.sum(
            lambda chunk, v=block: _residual_product(start, theta, kept, v, chunk),  # type: ignore[misc]
            scaling,
            n_bands,
        )
        basis = np.concatenate([basis, block], axis=2)
        images = np.concatenate([images, sums.product / sums.r[:, None, None]], axis=2)
        projected = basis.transpose(0, 2, 1) @ images
        values, rotation = np.linalg.eigh(0.5 * (projected + projected.transpose(0, 2, 1)))
        values, rotation = values[:, ::-1], rotation[:, :, ::-1]
        top = rotation[:, :, :n_leading]
        vectors = basis @ top
        residual = images @ top - vectors * values[:, None, :n_leading]
        largest_residual = np.linalg.norm(residual, axis=1).max(axis=1)
        converged = largest_residual <= EIGENPAIR_TOLERANCE * np.abs(values[:, 0])
        if converged.all() or basis.shape[2] == n_bands:
            break
        if basis.shape[2] + n_leading > largest and largest < n_bands:
            rotation = rotation[:, :, : largest // 2]
            basis, images = basis @ rotation, images @ rotation
        block = _orthonormal_complement(basis, residual[:, :, : n_bands - basis.shape[2]])
    else:
        logger.info("residual eigenvectors of the start not converged after %d passes", MAX_PRODUCTS)
    largest_entry = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)
    vectors = vectors * np.where(largest_entry < 0.0, -1.0, 1.0)
    return np.maximum(values[:, :n_leading], 0.0), vectors, sums.trace / sums.r


def _orthonormal_complement(basis: Array, block: Array) -> Array:
    """Orthonormal columns near ``block`` and orthogonal to ``basis``, both (K, D, ...); null columns are replaced."""
    norms = np.linalg.norm(block, axis=1, keepdims=True)
    filler = np.random.default_rng(1).standard_normal(block.shape[1:])
    null = norms <= np.finfo(float).tiny
    block = np.where(null, filler, block / np.where(null, 1.0, norms))
    for _ in range(3):
        block = block - basis @ (basis.transpose(0, 2, 1) @ block)
        block = np.linalg.qr(block)[0]
    return block
