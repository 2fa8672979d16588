"""One M-step of the marginal EM (Appendix B): the start of the general EM where there are latents.

Affine regression from parameters to spectra (M-regression-step), then PPCA of the residuals (M-residual-step,
without the stray 1/N). The leading eigenvectors of each residual covariance C_k are found from products
C_k V alone, each a sum over chunks, so that no D x D array is formed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from .arrays import Array
from .chunks import Chunk, ChunkSource
from .covariance import STRUCTURES
from .initialize import Start
from .maximization import Floor, LatentPrior, maximization
from .parameters import Constraints, GLLiMParameters
from .scaling import Scaling
from .statistics import Accumulator, SufficientStatistics

logger = logging.getLogger(__name__)

EIGENPAIR_TOLERANCE = 1e-12
MAX_PRODUCTS = 200
SMALLEST_BASIS = 96


def start_statistics(start: Start, sigma: str, chunk: Chunk) -> SufficientStatistics:
    """Sums for a first M-step straight from responsibilities, x being the parameters alone."""
    weights = start.responsibilities(chunk) * chunk.weights[:, None]
    none = LatentPrior.standard(weights.shape[1], 0)
    n_t, n_bands = chunk.parameters.shape[1], chunk.spectra.shape[1]
    accumulator = Accumulator(STRUCTURES[sigma], none.covariance, none.mean, n_t, n_bands)
    accumulator.add(chunk, weights, np.empty((len(chunk), 0, weights.shape[1])))
    return accumulator.statistics()


def marginal_maximization(
    source: ChunkSource,
    scaling: Scaling,
    start: Start,
    prior: LatentPrior,
    constraints: Constraints,
    floor: Floor,
) -> tuple[GLLiMParameters, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Theta with isotropic, distinct Sigma_k from responsibilities, and which components were kept."""
    distinct = replace(constraints, sigma="iso", tied_sigma=False)
    n_t, n_w, n_bands = len(floor.parameters), prior.dimension, len(floor.spectra)
    n_components = len(prior.mean)
    sums = source.sum(lambda chunk: start_statistics(start, "iso", chunk), scaling, n_components * (n_t + 1))
    no_latent = LatentPrior.standard(n_components, 0)
    regression, kept = maximization(sums, no_latent, distinct, floor)
    values, vectors, trace = leading_residuals(source, scaling, start, regression, np.flatnonzero(kept), n_w)
    noise = np.maximum(trace - values.sum(axis=1), 0.0) / (n_bands - n_w)
    noise = STRUCTURES["iso"].clip(noise, floor.spectra, floor.ratio)
    if floor.ratio == 0.0:
        singular = STRUCTURES["iso"].singular(noise, floor.spectra)
        if singular.all():
            raise ValueError(
                f"the residuals of all {len(noise)} components have no noise beyond {n_w} latent dimensions: "
                "use fewer latents, fewer components, or reg_covar > 0"
            )
        kept[np.flatnonzero(kept)[singular]] = False
        regression = _keep(regression, ~singular)
        values, vectors, noise = values[~singular], vectors[~singular], noise[~singular]
    prior = prior.keep(kept)
    spread = vectors * np.sqrt(np.maximum(values - noise[:, None], 0.0))[:, None, :]
    maps_w = spread @ np.linalg.inv(np.linalg.cholesky(prior.covariance))  # A_w Gamma_w A_w' = U (Lambda - s2) U'
    covariance = np.zeros((len(noise), n_t + n_w, n_t + n_w))
    covariance[:, :n_t, :n_t] = regression.Gamma
    covariance[:, n_t:, n_t:] = prior.covariance
    theta = GLLiMParameters(
        pi=regression.pi,
        c=np.concatenate([regression.c, prior.mean], axis=1),
        Gamma=covariance,
        A=np.concatenate([regression.A, maps_w], axis=2),
        b=regression.b - np.einsum("kdl,kl->kd", maps_w, prior.mean),
        Sigma=noise,
        n_latent=n_w,
        constraints=distinct,
    )
    return theta, kept


def _keep(theta: GLLiMParameters, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> GLLiMParameters:
    pi = theta.pi[kept] / theta.pi[kept].sum()
    arrays = {name: getattr(theta, name)[kept] for name in ("c", "Gamma", "A", "b", "Sigma")}
    return replace(theta, pi=pi, **arrays)


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
