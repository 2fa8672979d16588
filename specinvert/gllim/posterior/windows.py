"""What a model says of a window of bands, given all others: the label-free twin of predicting parameters.

p(y) is the mixture of pi_k N(c*_k, Gamma*_k), eq. GLLiMtoGLLimStar; its conditional p(y_w | y_-w) is a mixture again,
of weights pi_k p(y_-w | k) and Gaussian conditionals. With precisions P_k = (Gamma*_k)^-1 and u = P_k (y - c*_k), the
conditional of component k has the covariance (P_ww)^-1 and the mean y_w - (P_ww)^-1 u_w: one precision a component
serves all windows (Sundararajan and Keerthi, 2001, *Predictive approaches for choosing hyperparameters in Gaussian
processes*, Neural Computation 13, 1103).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, softmax

from ..core import LOG_2PI, NEGLIGIBLE, Array, one_blas_thread
from ..model import GLLiMParameters
from .committee import member_shares
from .forward import ForwardTerms, log_sum
from .posterior import NOTHING, SideInformation, alike, sharing_keys

FEW_BANDS, FEW, MANY = 20, 4, 6
"""Bands below which there are four windows, not six."""
ROWS = 256
"""Spectra that are taken at a time."""


def windows(n_bands: int) -> list[NDArray[np.intp]]:
    """Bands in windows of equal size, in their order: four where there are fewer than twenty bands, else six."""
    count = min(FEW if n_bands < FEW_BANDS else MANY, n_bands)
    return [part.astype(np.intp) for part in np.array_split(np.arange(n_bands), count)]


@dataclass(frozen=True, eq=False)
class WindowPrediction:
    """What the other bands say of the m bands of a window of n spectra.

    Attributes
    ----------
    mean, variance : (n, m) moments of p(y_w | y_-w).
    below : (n, m) the distribution function of each band at its value, uniform where the model is right.
    log_density : (n,) of y_w under it. log_others : (n,) log p(y_-w).
    """

    mean: Array
    variance: Array
    below: Array
    log_density: Array
    log_others: Array

    @classmethod
    def empty(cls, n: int, size: int) -> WindowPrediction:
        """NaN, of n spectra in a window of so many bands."""
        return cls(*np.full((3, n, size), np.nan), *np.full((2, n), np.nan))

    def put(self, rows: NDArray[np.intp], bands: NDArray[np.intp], part: WindowPrediction) -> None:
        """Fill some rows, and of their bands those that ``part`` is of."""
        for name in (one.name for one in fields(self)):
            to, values = getattr(self, name), getattr(part, name)
            to[rows if to.ndim == 1 else np.ix_(rows, bands)] = values

    @classmethod
    def averaged(cls, parts: Sequence[WindowPrediction], weights: Array | None = None) -> WindowPrediction:
        """Of a committee whose members have ``weights`` (M,); None: shares that follow p_m(y_-w)."""
        if len(parts) == 1:
            return parts[0]
        means, variances, below, densities, others = (
            np.stack([getattr(part, one.name) for part in parts]) for one in fields(cls)
        )
        shares = softmax(others, axis=0) if weights is None else np.repeat(weights[:, None], others.shape[1], axis=1)
        mean = np.einsum("pn,pnm->nm", shares, means)
        variance = np.einsum("pn,pnm->nm", shares, variances + (means - mean) ** 2)
        return cls(
            *(mean, variance, np.einsum("pn,pnm->nm", shares, below), logsumexp(densities, axis=0, b=shares)),
            logsumexp(others, axis=0, b=member_shares(len(parts), weights)[:, None]),
        )


@dataclass(frozen=True, eq=False)
class SpectralMixture:
    """p(y) of one theta or of a committee: the mixture of all components, with dense covariances.

    Attributes
    ----------
    log_weights : (K,), means : (K, D), covariances : (K, D, D), of all components of all members.
    """

    log_weights: Array
    means: Array
    covariances: Array

    @classmethod
    def of(cls, thetas: Sequence[GLLiMParameters], shares: Array | None = None) -> SpectralMixture:
        """Of members with weights ``shares`` (M,), None where all are the same."""
        weights = member_shares(len(thetas), shares)
        return cls(
            np.concatenate([np.log(t.pi) + np.log(share) for t, share in zip(thetas, weights, strict=True)]),
            np.concatenate([theta.centres() for theta in thetas]),
            np.concatenate([t.sigma_dense() + t.A @ t.Gamma @ t.A.transpose(0, 2, 1) for t in thetas]),
        )

    def predict(
        self, spectra: Array, bands: Sequence[NDArray[np.intp]], added: Array | None = None
    ) -> list[WindowPrediction]:
        """Each window of ``bands`` of complete spectra (n, D) from the other bands, ``added`` (D, D) to Gamma*_k."""
        n_components, n_bands = self.means.shape
        precisions = np.empty_like(self.covariances)
        log_dets = np.empty(n_components)
        for k, covariance in enumerate(self.covariances if added is None else self.covariances + added):
            root = np.linalg.inv(np.linalg.cholesky(covariance))
            precisions[k], log_dets[k] = root.T @ root, 2.0 * np.log(np.diagonal(root)).sum()
        made = [WindowPrediction.empty(len(spectra), len(window)) for window in bands]
        sets = [(places, _Windows.of(at, precisions[:, at[:, :, None], at[:, None]])) for places, at in _alike(bands)]
        with one_blas_thread():
            for rows in _blocks(np.arange(len(spectra))):
                gaps = spectra[rows] - self.means[:, None]
                solved = gaps @ precisions
                whole = 0.5 * (log_dets[:, None] - (gaps * solved).sum(axis=2) - n_bands * LOG_2PI)
                for places, own in sets:
                    parts = own.predict(spectra[rows], solved, self.log_weights[:, None] + whole)
                    for place, part in zip(places, parts, strict=True):
                        made[place].put(rows, np.arange(own.bands.shape[1]), part)
        return made


@dataclass(frozen=True, eq=False)
class _Windows:
    """Windows of m ``bands`` (W, m), in them covariances P_ww^-1 (K, W, m, m) of components, log|P_ww| (K, W)."""

    bands: NDArray[np.intp]
    covariances: Array
    log_dets: Array

    @classmethod
    def of(cls, bands: NDArray[np.intp], precisions: Array) -> _Windows:
        return cls(bands, np.linalg.inv(precisions), np.linalg.slogdet(precisions)[1])

    def predict(self, spectra: Array, solved: Array, log_joint: Array) -> list[WindowPrediction]:
        """Of complete spectra (n, D), by P_k (y - c*_k) (K, n, D) and log pi_k p(y | k) (K, n)."""
        own = solved[:, :, self.bands].transpose(0, 2, 1, 3)
        left = own @ self.covariances
        density = 0.5 * (self.log_dets[:, :, None] - (left * own).sum(axis=3) - self.bands.shape[1] * LOG_2PI)
        log_shares = log_joint[:, None] - density
        others = logsumexp(log_shares, axis=0)
        shares = np.exp(log_shares - others)
        gap = np.einsum("kwn,kwnm->wnm", shares, left)
        variances = np.diagonal(self.covariances, axis1=2, axis2=3)
        variance = np.einsum("kwn,kwm->wnm", shares, variances)
        variance += np.einsum("kwn,kwnm->wnm", shares, (left - gap) ** 2)
        below = np.zeros(gap.shape)
        k, w, n = np.nonzero(shares > np.exp(-NEGLIGIBLE))
        np.add.at(below, (w, n), shares[k, w, n, None] * ndtr(left[k, w, n] / np.sqrt(variances[k, w])))
        mean = spectra[:, self.bands].transpose(1, 0, 2) - gap
        inside = logsumexp(log_joint, axis=0) - others
        return [WindowPrediction(*parts) for parts in zip(mean, variance, below, inside, others, strict=True)]


def _alike(bands: Sequence[NDArray[np.intp]]) -> Iterator[tuple[list[int], NDArray[np.intp]]]:
    """Windows of one size: their places among all of them, and their bands (W, m); empty ones are left out."""
    for size in sorted({len(window) for window in bands} - {0}):
        places = [place for place, window in enumerate(bands) if len(window) == size]
        yield places, np.stack([bands[place] for place in places])


def _blocks(rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    yield from (rows[start : start + ROWS] for start in range(0, len(rows), ROWS))


def leave_out(
    terms: ForwardTerms, spectra: Array, bands: Sequence[NDArray[np.intp]], given: SideInformation = NOTHING
) -> list[WindowPrediction]:
    """Predict each window of ``bands`` from the others under one theta, given what is known of each spectrum.

    No D x D matrix is formed where Sigma is diagonal.

    Parameters
    ----------
    terms : of the model, with the noise that all spectra share.
    spectra : (n, D), not finite where a band is missing.
    bands : windows, which do not overlap; ``np.arange(D)[:, None]`` leaves out band by band.
    given : noise of each spectrum and known parameters.

    Returns
    -------
    Predictions from what is there, NaN of missing bands and of rows with too few; a window without any other valid band
    has that of the prior.
    """
    valid, theta = np.isfinite(spectra), terms.theta
    made = [WindowPrediction.empty(len(spectra), len(window)) for window in bands]
    enough = np.flatnonzero(valid.sum(axis=1) >= max(1, given.least_bands))
    known = np.full((len(spectra), theta.n_parameters), np.nan) if given.known is None else given.known
    added = None if given.added is None else given.added[enough]
    with one_blas_thread():
        for group in alike(sharing_keys(valid[enough], known[enough], added)):
            first = enough[group[0]]
            there, s = np.flatnonzero(valid[first]), tuple(np.flatnonzero(~np.isnan(known[first])).tolist())
            own = terms
            if len(there) < theta.n_bands or s or added is not None:
                own = terms.derived(there, s, None if added is None else added[group[0]])
            solver = _Solver.of(own)
            inside = [np.flatnonzero(valid[first, window]) for window in bands]
            at = [np.searchsorted(there, window[seen]) for window, seen in zip(bands, inside, strict=True)]
            sets = [(places, solver.windows(own_bands)) for places, own_bands in _alike(at)]
            for rows in _blocks(enough[group]):
                values = np.asarray(spectra[np.ix_(rows, there)], dtype=np.float64)
                solved, log_joint = solver.solve(values, known[rows][:, s])
                for places, of_size in sets:
                    for place, part in zip(places, of_size.predict(values, solved, log_joint), strict=True):
                        made[place].put(rows, inside[place], part)
    return made


@dataclass(frozen=True, eq=False)
class _Solver:
    """P_k: Sigma_k^-1, ``noise`` (K, D) if it is diagonal, else (K, D, D), less ``explained`` (K, D, r) squared."""

    terms: ForwardTerms
    noise: Array
    explained: Array

    @classmethod
    def of(cls, terms: ForwardTerms) -> _Solver:
        theta, structure = terms.theta, terms.theta.structure
        if structure.correlated:
            eye = np.eye(theta.n_bands)
            own = theta.Sigma[:1] if (theta.Sigma == theta.Sigma[:1]).all() else theta.Sigma
            noise = structure.solve(own, np.broadcast_to(eye, (len(own), *eye.shape)))
            noise = np.broadcast_to(noise, (theta.n_components, *eye.shape))
        else:
            noise = 1.0 / np.stack([variances for variances, _ in structure.axes(theta.Sigma, theta.n_bands)])
        return cls(terms, noise, structure.solve(theta.Sigma, terms.prior.maps @ terms.root))

    def windows(self, bands: NDArray[np.intp]) -> _Windows:
        """Of windows of some ``bands`` (W, m)."""
        own, eye = self.explained[:, bands], np.eye(bands.shape[1])
        diagonal = self.noise.ndim == 2
        noise = self.noise[:, bands, None] * eye if diagonal else self.noise[:, bands[:, :, None], bands[:, None]]
        return _Windows.of(bands, noise - own @ own.transpose(0, 1, 3, 2))

    def solve(self, spectra: Array, known: Array) -> tuple[Array, Array]:
        """P_k (y - c*_k) (K, n, D) of complete spectra (n, D), given the known (n, s), and log pi_k p(y | k) (K, n)."""
        prior = self.terms.prior
        x, log_prior = prior.regressors(known), prior.log_weights(self.terms.theta, known)
        solved, log_joint = np.empty((len(self.noise), *spectra.shape)), log_prior + self.terms.log_constant
        for k, (noise, own) in enumerate(zip(self.noise, self.explained, strict=True)):
            gap = spectra - x @ prior.regression[k].T
            solved[k] = (gap * noise if noise.ndim == 1 else gap @ noise) - (gap @ own) @ own.T
            log_joint[:, k] -= 0.5 * np.einsum("nd,nd->n", gap, solved[k])
        return solved, (log_joint - log_sum(log_prior)[:, None]).T
