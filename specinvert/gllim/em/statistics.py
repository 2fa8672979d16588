"""The E-step, and the sums that are all an M-step needs of the data.

:class:`ConditionalTerms` prepares theta once an iteration for r_Z (eq. r_z), the responsibilities of eq. SOLVA_EZstep,
and r_W|Z (eq. r_wz), the latents' means and covariances of eq. SOLVA_EWstep3; :class:`SufficientStatistics` adds over
blocks, chunks and workers. All in the scaled units of :mod:`specinvert.gllim.model.scaling`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import entr

from ..core import LOG_2PI, NEGLIGIBLE, Array, Workspace, accumulate_rows, normalize_rows, prior_rows
from ..model import GLLiMParameters, LogJoint, Scaling, Structure, update_prior
from .source import Chunk, blocks


@dataclass(frozen=True)
class LatentPosterior:
    """r_W|Z (eq. r_wz): given y_n, t_n and Z_n = k, w_n is Gaussian with mean mu_nk and covariance S_k.

    Attributes
    ----------
    c : (K, L_w) prior means c_w, about which mu_nk = c_k + root_k u_nk, with u (n, L_w, K) from the whitened residuals.
    root : (K, L_w, L_w) triangular roots of S. S : (K, L_w, L_w) S_w of eq. SOLVA_EWstep3.
    """

    c: Array
    root: Array
    S: Array


@dataclass(frozen=True)
class ConditionalTerms:
    """Theta, prepared for the posteriors of Z and of w: the two densities whose product is p(y, t | Z = k).

    Attributes
    ----------
    y_given_t : p(y | t, Z = k) = N(y; A [t; c_w] + b, Sigma + A_w Gamma_w A_w'), latents integrated out.
    c_t : (L_t, K), whitening : (L_t, L_t, K), of p(t | Z = k) = N(t; c_t, Gamma_t): the inverse Cholesky factor of
        Gamma_t, zero where that is flat.
    log_constant : (K,) log pi_k and the normalisation of both densities.
    r_wz : what is known of the latents once y, t and Z are.
    """

    y_given_t: LogJoint
    c_t: Array
    whitening: Array
    log_constant: Array
    r_wz: LatentPosterior

    @classmethod
    def of(cls, theta: GLLiMParameters) -> ConditionalTerms:
        """Prepare theta, for data about the origin: L_w x L_w systems only, no D x D array but a full Sigma's."""
        n_bands, n_t, structure = theta.n_bands, theta.n_parameters, theta.structure
        A_t, A_w = theta.A[:, :, :n_t], theta.A[:, :, n_t:]
        c_w, Gamma_w = np.ascontiguousarray(theta.c[:, n_t:]), theta.Gamma[:, n_t:, n_t:]
        basis, root, log_det_w = update_prior(structure, theta.Sigma, A_w, Gamma_w)
        log_det_y = structure.log_det(theta.Sigma, n_bands) + log_det_w
        offset = theta.b + np.einsum("kdl,kl->kd", A_w, c_w)
        regression = np.concatenate([A_t, offset[:, :, None]], axis=2)
        root_t = np.linalg.cholesky(theta.Gamma[:, :n_t, :n_t])
        whitening = np.ascontiguousarray(np.linalg.inv(root_t).transpose(1, 2, 0))
        log_det_t = 2.0 * np.log(np.diagonal(root_t, axis1=1, axis2=2)).sum(axis=1) + n_t * LOG_2PI
        if theta.constraints.flat:
            whitening, log_det_t = np.zeros_like(whitening), np.zeros_like(log_det_t)
        return cls(
            y_given_t=structure.log_joint(
                theta.Sigma, regression, basis, theta.expected(np.arange(n_t), np.zeros(n_t))
            ),
            c_t=np.ascontiguousarray(theta.c[:, :n_t].T),
            whitening=whitening,
            log_constant=np.log(theta.pi) - 0.5 * (log_det_y + log_det_t + n_bands * LOG_2PI),
            r_wz=LatentPosterior(c_w, root, root @ root.transpose(0, 2, 1)),
        )

    def posteriors(self, y: Array, t: Array, workspace: Workspace) -> tuple[Array, Array, Array]:
        """r_nk (n, K), zero where negligible, log p(y_n, t_n) (n,), and u (n, L_w, K) of :class:`LatentPosterior`."""
        n = len(y)
        r, log_density = workspace.array("densities", n, len(self.log_constant)), np.empty(n)
        prior_rows(t, self.c_t, self.whitening, self.log_constant, r)  # log pi_k p(t_n | Z_n = k)
        x = np.concatenate([t, np.ones((n, 1))], axis=1)
        u = self.y_given_t(y, x, r, NEGLIGIBLE, workspace)  # adds log p(y_n | t_n, Z_n = k)
        normalize_rows(r, log_density)  # eq. SOLVA_EZstep
        return r, log_density, u


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
        r, log_density, _ = terms.posteriors(rows.spectra, rows.parameters, workspace)
        densities.append(log_density)
        entropies.append(entr(r).sum(axis=1))
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

    def keep(self, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> SufficientStatistics:
        """The statistics of some components."""
        per_component = (getattr(self, f.name)[kept] for f in fields(self)[2:])
        return SufficientStatistics(self.total, self.log_likelihood, *per_component)


class Accumulator:
    """Adds rows to sums in place, for one thread; x = [t; mu] has the latents' means under ``r_wz``."""

    def __init__(self, structure: Structure, r_wz: LatentPosterior, n_parameters: int, n_bands: int) -> None:
        n_components, n_latent = r_wz.c.shape
        size = 1 + n_parameters + n_latent
        self.structure, self.r_wz, self.n_parameters = structure, r_wz, n_parameters
        self.total = self.log_likelihood = 0.0
        self.outer = np.zeros((n_components, size, size))
        self.sums = np.zeros((n_components, size, n_bands))
        self.yy = np.zeros(structure.moment_shape(n_components, n_bands))

    def add(self, rows: Chunk, weights: Array, u: Array, log_likelihood: float = 0.0) -> None:
        """Add rows under weights (n, K) = sample weight times responsibility, with u (n, L_w, K) of the latents."""
        self.total += float(rows.weights.sum())
        self.log_likelihood += log_likelihood
        r_wz = self.r_wz
        accumulate_rows(weights, u, r_wz.root, r_wz.c, rows.parameters, rows.spectra, self.outer, self.sums)
        self.structure.add_second_moments(rows.spectra, weights, self.yy)

    def statistics(self) -> SufficientStatistics:
        """What was added, with r_k S^x."""
        r, xx, n_t = self.outer[:, 0, 0], self.outer[:, 1:, 1:].copy(), self.n_parameters
        xx[:, n_t:, n_t:] += r[:, None, None] * self.r_wz.S
        return SufficientStatistics(
            total=self.total,
            log_likelihood=self.log_likelihood,
            r=r,
            x=self.outer[:, 0, 1:],
            xx=xx,
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
    r_wz = terms.r_wz
    if not latents:
        r_wz = LatentPosterior(r_wz.c[:, :0], r_wz.root[:, :0, :0], r_wz.S[:, :0, :0])
    accumulator = Accumulator(structure, r_wz, chunk.parameters.shape[1], chunk.spectra.shape[1])
    workspace = Workspace.of_this_thread()
    for part in blocks(chunk, structure.rows):
        rows = part.scaled(scaling, workspace)
        r, log_density, u = terms.posteriors(rows.spectra, rows.parameters, workspace)
        r *= rows.weights[:, None]
        accumulator.add(rows, r, u, float(rows.weights @ log_density))
    return accumulator.statistics()
