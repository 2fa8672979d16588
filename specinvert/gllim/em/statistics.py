"""The E-step, and the sums that are all an M-step needs of the data.

:class:`ConditionalTerms` prepares theta once an iteration; :func:`expectation` turns a row block into responsibilities
(eq. SOLVA_EZstep) and latent means (eq. SOLVA_EWstep3); :class:`SufficientStatistics` adds over blocks, chunks and
workers. All in the scaled units of :mod:`specinvert.gllim.model.scaling`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import entr

from ..core import LOG_2PI, NEGLIGIBLE, Array, Workspace, accumulate_rows, normalize_rows, prior_rows
from ..model import STRUCTURES, GLLiMParameters, LogJoint, Scaling, Structure, mean_square, update_prior
from .chunks import Chunk, blocks


@dataclass(frozen=True)
class ConditionalTerms:
    """Theta, prepared for the density of (y, t) and the posterior of w given y, t and k.

    Attributes
    ----------
    residuals : log-densities of y - A_t t - b - A_w c_w, latents integrated out.
    latent_mean : (K, L_w) c_w.
    latent_covariance : (K, L_w, L_w) S_w of eq. SOLVA_EWstep3, ``root`` a triangular root of it.
    centre : (L_t, K) c_t. whitening : (L_t, L_t, K), inverse Cholesky factor of Gamma_t; zero where that is flat.
    log_constant : (K,) log pi_k and the normalisation of both densities.
    """

    residuals: LogJoint
    latent_mean: Array
    latent_covariance: Array
    root: Array
    centre: Array
    whitening: Array
    log_constant: Array

    @classmethod
    def of(cls, theta: GLLiMParameters) -> ConditionalTerms:
        """Prepare theta, for data about the origin: L_w x L_w systems only, no D x D array but a full Sigma's."""
        n_bands, n_t, structure = theta.n_bands, theta.n_parameters, theta.structure
        maps_t, maps_w = theta.A[:, :, :n_t], theta.A[:, :, n_t:]
        latent_mean = np.ascontiguousarray(theta.c[:, n_t:])
        intercept = theta.b + np.einsum("kdl,kl->kd", maps_w, latent_mean)
        basis, root, log_det_latent = update_prior(structure, theta.Sigma, maps_w, theta.Gamma[:, n_t:, n_t:])
        root_t = np.linalg.cholesky(theta.Gamma[:, :n_t, :n_t])
        whitening = np.ascontiguousarray(np.linalg.inv(root_t).transpose(1, 2, 0))
        log_det_t = 2.0 * np.log(np.diagonal(root_t, axis1=1, axis2=2)).sum(axis=1) + n_t * LOG_2PI
        if theta.constraints.gamma == "flat":
            whitening, log_det_t = np.zeros_like(whitening), np.zeros_like(log_det_t)
        log_det = structure.log_det(theta.Sigma, n_bands) + log_det_latent + log_det_t
        regression = np.concatenate([maps_t, intercept[:, :, None]], axis=2)
        return cls(
            residuals=structure.log_joint(theta.Sigma, regression, basis, mean_square(theta)),
            latent_mean=latent_mean,
            latent_covariance=root @ root.transpose(0, 2, 1),
            root=root,
            centre=np.ascontiguousarray(theta.c[:, :n_t].T),
            whitening=whitening,
            log_constant=np.log(theta.pi) - 0.5 * (log_det + n_bands * LOG_2PI),
        )

    def log_joint(self, spectra: Array, parameters: Array, workspace: Workspace) -> tuple[Array, Array]:
        """Log of pi_k p(y_n, t_n | k) (n, K), -inf where negligible, and the whitened latents (n, L_w, K) about c_w."""
        n = len(spectra)
        densities = workspace.array("densities", n, len(self.log_constant))
        prior_rows(parameters, self.centre, self.whitening, self.log_constant, densities)
        x = np.concatenate([parameters, np.ones((n, 1))], axis=1)
        return densities, self.residuals(spectra, x, densities, NEGLIGIBLE, workspace)


def log_joint_density(theta: GLLiMParameters, spectra: Array, parameters: Array) -> Array:
    """Observed log-density log p(y_n, t_n), or log p(y_n | t_n) under a flat Gamma, (n,) in the units of theta."""
    return density_and_entropy(theta, spectra, parameters)[0]


def density_and_entropy(theta: GLLiMParameters, spectra: Array, parameters: Array) -> tuple[Array, Array]:
    """:func:`log_joint_density` (n,), and the entropy (n,) of each sample's responsibilities in nats."""
    origin = theta.pi @ theta.centres()
    n_t = theta.n_parameters
    scaling = Scaling(origin, np.ones_like(origin), theta.pi @ theta.c[:, :n_t], np.ones(n_t))
    terms = ConditionalTerms.of(scaling.inverse().to_user(theta))
    chunk = Chunk(spectra, parameters, np.ones(len(spectra)))
    densities, entropies, workspace = [], [], Workspace()
    for part in blocks(chunk, theta.structure.rows):
        rows = part.scaled(scaling, workspace)
        by_component, _ = terms.log_joint(rows.spectra, rows.parameters, workspace)
        densities.append(np.empty(len(rows)))
        normalize_rows(by_component, densities[-1])
        entropies.append(entr(by_component).sum(axis=1))
    return np.concatenate(densities), np.concatenate(entropies)


@dataclass(frozen=True)
class SufficientStatistics:
    """Sums over rows, weighted by the responsibilities, about the origin of the scaled units.

    Attributes
    ----------
    total : sum of the sample weights. log_likelihood : weighted sum of log p(y_n, t_n), scaled units.
    r : (K,). x : (K, L), xx : (K, L, L) with r_k S^x in it, y : (K, D), xy : (K, L, D).
    yy : second moments of the spectra in the compact form of the structure.
    """

    total: float
    log_likelihood: float
    r: Array
    x: Array
    xx: Array
    y: Array
    xy: Array
    yy: Array

    def __add__(self, other: SufficientStatistics) -> SufficientStatistics:
        sums = (getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        return SufficientStatistics(*sums)

    @classmethod
    def identity(cls, n_components: int, dimension: int, n_bands: int, sigma: str) -> SufficientStatistics:
        """The sum over no rows."""
        return cls(
            0.0,
            0.0,
            np.zeros(n_components),
            np.zeros((n_components, dimension)),
            np.zeros((n_components, dimension, dimension)),
            np.zeros((n_components, n_bands)),
            np.zeros((n_components, dimension, n_bands)),
            np.zeros(STRUCTURES[sigma].moment_shape(n_components, n_bands)),
        )

    def keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> SufficientStatistics:
        """The statistics of some components."""
        per_component = (getattr(self, f.name)[kept] for f in fields(self)[2:])
        return SufficientStatistics(self.total, self.log_likelihood, *per_component)


class Accumulator:
    """Adds rows to sums in place, for one thread.

    x = [t; w] has the parameters of the rows and latents ``mean + root latent``, root (K, L_w, L_w), mean (K, L_w).
    """

    def __init__(self, structure: Structure, root: Array, mean: Array, n_parameters: int, n_bands: int) -> None:
        n_components, n_latent = mean.shape
        size = 1 + n_parameters + n_latent
        self.structure, self.root, self.mean = structure, root, mean
        self.total = self.log_likelihood = 0.0
        self.outer = np.zeros((n_components, size, size))
        self.sums = np.zeros((n_components, size, n_bands))
        self.yy = np.zeros(structure.moment_shape(n_components, n_bands))

    def add(self, rows: Chunk, weights: Array, latent: Array, log_likelihood: float = 0.0) -> None:
        """Add rows under weights (n, K) = sample weight times responsibility, with latents (n, L_w, K)."""
        self.total += float(rows.weights.sum())
        self.log_likelihood += log_likelihood
        accumulate_rows(weights, latent, self.root, self.mean, rows.parameters, rows.spectra, self.outer, self.sums)
        self.structure.add_second_moments(rows.spectra, weights, self.yy)

    def statistics(self) -> SufficientStatistics:
        """What was added."""
        return SufficientStatistics(
            total=self.total,
            log_likelihood=self.log_likelihood,
            r=self.outer[:, 0, 0],
            x=self.outer[:, 0, 1:],
            xx=self.outer[:, 1:, 1:],
            y=self.sums[:, 0],
            xy=self.sums[:, 1:],
            yy=self.yy,
        )


def expectation(
    terms: ConditionalTerms, structure: Structure, scaling: Scaling | None, chunk: Chunk, latents: bool = True
) -> SufficientStatistics:
    """E-W-step and E-Z-step on a chunk, as sums for the M-step in the given structure of Sigma.

    Without ``latents`` the E-Z-step alone: x is t.
    """
    n_t, n_bands = chunk.parameters.shape[1], chunk.spectra.shape[1]
    size = terms.latent_mean.shape[1] if latents else 0
    root, covariance = terms.root[:, :size, :size], terms.latent_covariance[:, :size, :size]
    accumulator = Accumulator(structure, root, terms.latent_mean[:, :size], n_t, n_bands)
    workspace = Workspace.of_this_thread()
    for part in blocks(chunk, structure.rows):
        rows = part.scaled(scaling, workspace)
        weights, latent = terms.log_joint(rows.spectra, rows.parameters, workspace)
        log_density = np.empty(len(rows))
        normalize_rows(weights, log_density)
        weights *= rows.weights[:, None]
        accumulator.add(rows, weights, latent, float(rows.weights @ log_density))
    sums = accumulator.statistics()
    sums.xx[:, n_t:, n_t:] += sums.r[:, None, None] * covariance
    return sums
