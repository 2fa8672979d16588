"""First responsibilities and, where there are latents, the first theta: section "Algorithm Initialization".

Clusters of parameters, spectra or both are found on a sample of the training set and give any chunk its
responsibilities, so a start needs no more memory than a chunk. Clusters see every parameter and band divided by its own
deviation; the joint start lets the block of parameters and the block of spectra weigh the same.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from ..core import Array
from ..model import DIAG, ISO, GLLiMParameters, Scaling, Structure
from .maximization import ComponentMoments, Fixed, Kept, Rules, maximization, regression, with_latents
from .source import Chunk, ChunkSource
from .statistics import Accumulator, LatentPosterior, SufficientStatistics

logger = logging.getLogger(__name__)

SAMPLE_ROWS = 50_000
_FILTERS = threading.Lock()
MAX_PRODUCTS = 200

Start = Callable[[Chunk], Array]
"""Gives the rows of a chunk, in scaled units, their first responsibilities (n, K)."""


def given_responsibilities(chunk: Chunk) -> Array:
    """The responsibilities that the chunk carries."""
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
        blocks = (chunk.parameters, self.parameters), (chunk.spectra, self.spectra)
        return np.concatenate([values * weights for values, weights in blocks if weights is not None], axis=1)


def nearest_centre(features: Features, centres: Array, chunk: Chunk) -> Array:
    """One for the nearest of centres (K, m); the expanded square serves, being compared within a row only."""
    distance = (centres**2).sum(axis=1) - 2.0 * features(chunk) @ centres.T
    return np.eye(len(centres))[distance.argmin(axis=1)]


def mixture_posterior(features: Features, mixture: GaussianMixture, chunk: Chunk) -> Array:
    """The posterior probabilities of a mixture fitted by scikit-learn."""
    if len(chunk) == 0:
        return np.zeros((0, mixture.n_components))
    return np.asarray(mixture.predict_proba(features(chunk)))


def find_start(
    name: str, n_components: int, source: ChunkSource, scaling: Scaling, variances: tuple[Array, Array], seed: int
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
            return partial(mixture_posterior, features, mixture.fit(rows))
    means = KMeans(n_components, n_init=10, random_state=seed)
    with _start_is_enough():
        # fewer distinct rows than clusters: the empty ones are removed and counted by the first M-step
        means.fit(rows, sample_weight=sample.weights)
    return partial(nearest_centre, features, means.cluster_centers_)


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

    Each spectrum begins in the component of the nearest node (Bishop, Svensen and Williams, 1998, *GTM: the generative
    topographic mapping*).
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
        return partial(nearest_centre, Features(None, np.ones(len(mean))), centres)


def start_statistics(start: Start, structure: Structure, prior: Fixed, chunk: Chunk) -> SufficientStatistics:
    """Sums for a first M-step straight from responsibilities, latents having their prior moments in each component."""
    weights = start(chunk) * chunk.weights[:, None]
    n_t, n_bands, n_w = chunk.parameters.shape[1], chunk.spectra.shape[1], prior.dimension
    prior_of_w = LatentPosterior(prior.mean, np.zeros_like(prior.covariance), prior.covariance)
    accumulator = Accumulator(structure, prior_of_w, n_t, n_bands)
    accumulator.add(chunk, weights, np.zeros((len(chunk), n_w, weights.shape[1])))
    return accumulator.statistics()


def pooled_variance(source: ChunkSource, scaling: Scaling, rules: Rules) -> Array:
    """The mean variance in the user's units of the residuals of one affine map, as variances (D,) in scaled ones."""
    sums = source.sum(partial(start_statistics, _one_component, DIAG, Fixed.standard(1, 0)), scaling)
    moments = ComponentMoments.of(sums, rules.constraints.intercept)
    variances = moments.residual(regression(moments, rules), DIAG)[0]
    squares = scaling.spectra_scale**2
    return np.asarray(np.maximum((variances * squares).mean(), 0.0) / squares)


def _one_component(chunk: Chunk) -> Array:
    return np.ones((len(chunk), 1))


def marginal_maximization(
    source: ChunkSource, scaling: Scaling, start: Start, fixed: Fixed, rules: Rules
) -> tuple[GLLiMParameters, Kept]:
    """Theta with isotropic, distinct Sigma_k and maps from responsibilities, and which components were kept.

    One M-step of the marginal EM (Appendix B): affine regression from parameters to spectra (M-regression-step), then
    PPCA of the residuals (M-residual-step, without the stray 1/N). The leading eigenvectors of each residual covariance
    C_k are found from products C_k V alone, each a sum over chunks, so that no D x D array is formed.
    """
    distinct = replace(
        rules.constraints,
        sigma=ISO.name,
        tied_sigma=False,
        sigma_blocks=None,
        tied_maps=False,
        intercept=True,
        shrinkage=None,
        fixed=tuple(name for name in rules.constraints.fixed if name != "Sigma"),
    )
    n_t, (n_components, n_w), n_bands = len(rules.parameters), fixed.mean.shape, len(rules.spectra)
    prior_parts = {name: part for name, part in fixed.parts.items() if name != "Sigma"}
    supervised = replace(Fixed.standard(n_components, 0), parts=prior_parts)
    step = partial(start_statistics, start, ISO, supervised)
    sums = source.sum(step, scaling, n_components * (n_t + 1))
    affine, kept = maximization(sums, supervised, replace(rules, constraints=distinct))
    values, vectors, trace = leading_residuals(source, scaling, start, affine, np.flatnonzero(kept), n_w)
    noise = np.maximum(trace - values.sum(axis=1), 0.0) / (n_bands - n_w)
    noise = ISO.clip(noise, rules.spectra, rules.ratio)
    if rules.ratio == 0.0:
        singular = ISO.singular(noise, rules.spectra)
        if singular.all():
            raise ValueError(
                f"the residuals of all {len(noise)} components have no noise beyond {n_w} latent dimensions: "
                "use fewer latents, fewer components, or reg_covar > 0"
            )
        kept[np.flatnonzero(kept)[singular]] = False
        affine = affine.keep(~singular)
        values, vectors, noise = values[~singular], vectors[~singular], noise[~singular]
    spread = vectors * np.sqrt(np.maximum(values - noise[:, None], 0.0))[:, None, :]
    return with_latents(replace(affine, Sigma=noise), fixed.keep(kept), spread), kept


@dataclass(frozen=True)
class _ResidualProduct:
    """Sums r_k (K,), r_nk |u|^2 (K,) and r_nk u u' V_k (K, D, p) over residuals u."""

    r: Array
    trace: Array
    product: Array

    def __add__(self, other: _ResidualProduct) -> _ResidualProduct:
        return _ResidualProduct(self.r + other.r, self.trace + other.trace, self.product + other.product)


def _residual_product(
    start: Start, theta: GLLiMParameters, kept: NDArray[np.intp], basis: Array, chunk: Chunk
) -> _ResidualProduct:
    weights = (start(chunk) * chunk.weights[:, None])[:, kept]
    trace, product = np.zeros(len(basis)), np.zeros(basis.shape)
    for k, directions in enumerate(basis):
        rows = np.flatnonzero(weights[:, k] > 0.0)
        r = weights[rows, k]
        residual = chunk.spectra[rows] - chunk.parameters[rows] @ theta.A[k].T - theta.b[k]
        trace[k] = r @ np.einsum("nd,nd->n", residual, residual)
        product[k] = residual.T @ (r[:, None] * (residual @ directions))
    return _ResidualProduct(weights.sum(axis=0), trace, product)


def leading_residuals(
    source: ChunkSource, scaling: Scaling, start: Start, theta: GLLiMParameters, kept: NDArray[np.intp], n_leading: int
) -> tuple[Array, Array, Array]:
    """Leading eigenvalues (K, p), eigenvectors (K, D, p) and trace (K,) of C_k = sum_n (r_nk / r_k) u u'.

    Block Krylov spaces with full orthogonalisation, restarted from the leading Ritz vectors when they grow large;
    all components advance together, one pass over the data a block. Signs make the largest entry positive.
    """
    n_bands = theta.n_bands
    largest = min(n_bands, max(96, 8 * n_leading))
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
        converged = np.linalg.norm(residual, axis=1).max(axis=1) <= 1e-12 * np.abs(values[:, 0])
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
