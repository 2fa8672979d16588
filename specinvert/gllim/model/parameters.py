"""The model: parameters theta, conversions that keep the density unchanged, and criteria that count what is free.

Equations of the paper: theta-def, SOLVA_decomp, GLLiMtoGLLimStar (forward parameters theta*), and Appendix A
(GLMtoJGMM, JGMMtoGLM). It chooses L_w by BIC (section "Latent Dimension Estimation Using BIC").
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..core import Array
from .constraints import Constraints
from .residuals import Expected
from .structure import FULL, Structure

SAMPLES_PER_COLUMN = 3
"""Samples that a component needs, for each column of its affine map, to leave a noise to estimate."""


@dataclass(frozen=True)
class GLLiMParameters:
    """The inverse regression theta = {pi, c, Gamma, A, b, Sigma} of K components.

    Attributes
    ----------
    pi : (K,) weights, summing to one.
    c : (K, L) means of x = [t; w], parameters first, latents last.
    Gamma : (K, L, L) covariances of x, zero between t and w (eq. SOLVA_decomp).
    A : (K, D, L) and b : (K, D), the affine maps from x to spectra.
    Sigma : noise covariances in the compact form of ``structure``; :meth:`sigma_dense` gives (K, D, D).
    n_latent : L_w, the number of trailing entries of x that are latent.
    constraints : the structure that the parameters obey.

    Examples
    --------
    >>> pi, c, Gamma = np.ones(1), np.zeros((1, 2)), np.eye(2)[None]
    >>> theta = GLLiMParameters(pi, c, Gamma, A=np.ones((1, 3, 2)), b=np.zeros((1, 3)), Sigma=0.5 * pi, n_latent=1)
    >>> theta.n_components, theta.n_bands, theta.n_parameters, theta.sigma_dense().shape
    (1, 3, 1, (1, 3, 3))
    """

    pi: Array
    c: Array
    Gamma: Array
    A: Array
    b: Array
    Sigma: Array
    n_latent: int = 0
    constraints: Constraints = field(default_factory=Constraints)

    def __post_init__(self) -> None:
        n_components, n_bands, dimension = self.A.shape
        self.constraints.check_bands(n_bands)
        expected = {
            "pi": (n_components,),
            "c": (n_components, dimension),
            "Gamma": (n_components, dimension, dimension),
            "b": (n_components, n_bands),
            "Sigma": self.structure.moment_shape(n_components, n_bands),
        }
        for name, shape in expected.items():
            if getattr(self, name).shape != shape:
                raise ValueError(
                    f"{name} has shape {getattr(self, name).shape}; A of shape {self.A.shape} with "
                    f"sigma={self.constraints.sigma!r} needs {shape}"
                )
        if not 0 <= self.n_latent <= dimension:
            raise ValueError(f"n_latent={self.n_latent} does not fit the {dimension} columns of A")

    @property
    def structure(self) -> Structure:
        """The covariance structure of Sigma."""
        return self.constraints.structure

    @property
    def n_components(self) -> int:
        """K."""
        return self.A.shape[0]

    @property
    def n_bands(self) -> int:
        """D."""
        return self.A.shape[1]

    @property
    def n_parameters(self) -> int:
        """L_t."""
        return self.A.shape[2] - self.n_latent

    @property
    def n_free(self) -> int:
        """Free parameters, as the paper counts them."""
        return n_free_parameters(self.n_components, self.n_bands, self.n_parameters, self.n_latent, self.constraints)

    def arrays(self) -> dict[str, Array]:
        """The arrays by name, as they are: what a file, a token or a hash of the model has to hold."""
        return {name: getattr(self, name) for name in ("pi", "c", "Gamma", "A", "b", "Sigma")}

    def centres(self) -> Array:
        """Mean spectrum of each component (K, D): c* of eq. GLLiMtoGLLimStar."""
        return np.asarray(np.einsum("kdl,kl->kd", self.A, self.c) + self.b)

    def sigma_dense(self) -> Array:
        """Sigma as dense covariances (K, D, D)."""
        return self.structure.dense(self.Sigma, self.n_bands)

    def select_bands(self, bands: NDArray[np.intp]) -> GLLiMParameters:
        """Theta of the marginal density of some bands: those rows of A, b and Sigma."""
        structure, sigma = self.structure.select(self.Sigma, bands, self.n_bands)
        constraints = self.constraints.with_structure(structure)
        return replace(self, A=self.A[:, bands], b=self.b[:, bands], Sigma=sigma, constraints=constraints)

    def keep(self, kept: NDArray[np.bool_]) -> GLLiMParameters:
        """Theta of some components, their weights made to sum to one."""
        arrays = {name: array[kept] for name, array in self.arrays().items()}
        return replace(self, **{**arrays, "pi": arrays["pi"] / arrays["pi"].sum()})

    def with_full_noise(self) -> GLLiMParameters:
        """The same theta, Sigma held as (K, D, D)."""
        return replace(self, Sigma=self.sigma_dense(), constraints=self.constraints.with_structure(FULL))

    def with_noise(self, noise: Array) -> GLLiMParameters:
        """Theta of spectra with independent noise of covariance ``noise``: a variance (), variances (D,) or (D, D).

        The structure of Sigma is the least that holds the sum: iso stays iso under one variance for all bands, becomes
        diag under a variance a band, blocks stay blocks, and anything becomes full under a covariance.
        """
        structure, sigma = self.structure.add_noise(self.Sigma, np.asarray(noise, dtype=np.float64), self.n_bands)
        return replace(self, Sigma=sigma, constraints=self.constraints.with_structure(structure))

    def shrunk(self, share: float) -> GLLiMParameters:
        """Theta of one component, in the user's units, as a fit with ``shrinkage=share`` finds it, from one with less.

        The estimate of Sigma and what it is shrunk towards have the same trace, so that one fit tells those of all
        shares. Begin with a small one where there are fewer samples than bands, not with none: ``reg_covar`` acts then.
        Raises ValueError for latents or several components, which depend on the share in more than Sigma.
        """
        before = self.constraints.shrinkage or 0.0
        if self.n_components > 1 or self.n_latent or self.structure.isotropic or not before <= share <= 1.0:
            raise ValueError(
                f"shrunk({share!r}) is for one component without latents, of more than one variance, fitted with a "
                f"smaller shrinkage (here {self.constraints.sigma!r}, {before:g})"
            )
        kept = (1.0 - share) / (1.0 - before) if before < 1.0 else 1.0
        variance = (share - kept * before) * np.trace(self.sigma_dense()[0]) / self.n_bands
        _, Sigma = self.structure.add_noise(kept * self.Sigma, np.asarray(variance), self.n_bands)
        return replace(self, Sigma=Sigma, constraints=replace(self.constraints, shrinkage=share))

    def expected(self, known: NDArray[np.intp], origin: Array) -> Expected:
        """What theta expects of spectra and of the regressors [x_S - origin; 1], S the entries ``known`` of x."""
        mean = np.concatenate([self.c[:, known] - origin, np.ones((self.n_components, 1))], axis=1)
        regressors = mean[:, :, None] * mean[:, None, :]
        regressors[:, :-1, :-1] += self.Gamma[:, known[:, None], known]
        return Expected(self.mean_square(), self.pi, regressors, self.second_moments)

    def second_moments(self) -> Array:
        """Of the spectra about the origin, (D, D)."""
        spread = np.concatenate([self.A @ np.linalg.cholesky(self.Gamma), self.centres()[:, :, None]], axis=2)
        columns = (spread * np.sqrt(self.pi)[:, None, None]).transpose(1, 0, 2).reshape(self.n_bands, -1)
        noise = np.tensordot(self.pi, self.Sigma, axes=1)[None]
        return np.asarray(columns @ columns.T + self.structure.dense(noise, self.n_bands)[0])

    def mean_square(self) -> Array:
        """Mean square (D,) about the origin of the spectra that theta explains, noise left out."""
        return np.asarray(self.pi @ (self.centres() ** 2 + np.einsum("kdl,kdl->kd", self.A @ self.Gamma, self.A)))

    def forward(self) -> GLLiMParameters:
        """The forward parameters theta* (eq. GLLiMtoGLLimStar), spectra as regressor: D x D, so for small D.

        In the result ``c`` is c* (K, D), ``Gamma`` is Gamma* (K, D, D), ``A`` is A* (K, L, D), ``b`` is b* (K, L),
        ``Sigma`` is Sigma* (K, L, L). Prediction does not need it: see :mod:`specinvert.gllim.posterior.posterior`.
        """
        solved = self.structure.solve(self.Sigma, self.A)
        covariance = np.linalg.inv(np.linalg.inv(self.Gamma) + self.A.transpose(0, 2, 1) @ solved)
        maps = covariance @ solved.transpose(0, 2, 1)
        prior = np.linalg.solve(self.Gamma, self.c[:, :, None])[:, :, 0]
        offset = prior - np.einsum("kdl,kd->kl", solved, self.b)
        return GLLiMParameters(
            pi=self.pi,
            c=self.centres(),
            Gamma=self.sigma_dense() + self.A @ self.Gamma @ self.A.transpose(0, 2, 1),
            A=maps,
            b=np.einsum("klm,km->kl", covariance, offset),
            Sigma=covariance,
            constraints=Constraints(sigma="full"),
        )

    def to_joint_gmm(self) -> tuple[Array, Array, Array]:
        """The equivalent Gaussian mixture on [x; y] (eq. JGMMtoGLM).

        Returns weights (K,), means (K, L + D) and covariances (K, L + D, L + D).
        """
        cross = self.A @ self.Gamma
        means = np.concatenate([self.c, self.centres()], axis=1)
        spectral = self.sigma_dense() + cross @ self.A.transpose(0, 2, 1)
        covariances = np.block([[self.Gamma, cross.transpose(0, 2, 1)], [cross, spectral]])
        return self.pi, means, covariances

    @classmethod
    def from_joint_gmm(cls, weights: Array, means: Array, covariances: Array, n_parameters: int) -> GLLiMParameters:
        """The equivalent theta of a Gaussian mixture on [x; y] (eq. GLMtoJGMM), all of x observed.

        ``weights`` (K,), ``means`` (K, L + D), ``covariances`` (K, L + D, L + D), ``n_parameters`` = L.
        """
        x, y = slice(None, n_parameters), slice(n_parameters, None)
        cross = covariances[:, x, y]
        maps = np.linalg.solve(covariances[:, x, x], cross).transpose(0, 2, 1)
        return cls(
            pi=np.asarray(weights),
            c=means[:, x],
            Gamma=covariances[:, x, x],
            A=maps,
            b=means[:, y] - np.einsum("kdl,kl->kd", maps, means[:, x]),
            Sigma=np.asarray(covariances[:, y, y] - maps @ cross),
            constraints=Constraints(sigma="full"),
        )


def n_free_parameters(
    n_components: int, n_bands: int, n_parameters: int, n_latent: int, constraints: Constraints, rotations: bool = True
) -> int:
    """Dimension of theta, D(theta), as the paper counts it.

    The rotations that leave A_w A_w' undetermined are counted, as in the paper; without ``rotations`` each A_w counts
    L_w (L_w - 1) / 2 less, the dimension of the rotations of latents with one covariance. What is fixed, the prior of
    the latents included, does not count, nor does a flat prior. With iso tied Sigma and full Gamma this is
    K (D (L_w + L_t + 1) + L_t (L_t + 3) / 2 + 1).
    """
    fixed = constraints.fixed
    slopes = n_bands * (n_parameters + n_latent) - (0 if rotations else n_latent * (n_latent - 1) // 2)
    count = slopes * (1 if constraints.tied_maps else n_components)
    if constraints.intercept:
        count += n_components * n_bands
    if not constraints.tied_pi and "pi" not in fixed:
        count += n_components - 1
    if not constraints.flat and "c" not in fixed:
        count += n_components * n_parameters
    if not constraints.flat and "Gamma" not in fixed and n_parameters:
        own = constraints.prior_structure.n_free(n_parameters)
        if constraints.tied_gamma == "volume":
            count += n_components * own - (n_components - 1)
        else:
            count += own * (1 if constraints.tied_gamma else n_components)
    if "Sigma" not in fixed:
        count += constraints.structure.n_free(n_bands) * (1 if constraints.tied_sigma else n_components)
    return count


def aic(log_likelihood: float, n_free: int) -> float:
    """``-2 L + 2 D(theta)``, Akaike's criterion; smaller is better."""
    return float(-2.0 * log_likelihood + 2.0 * n_free)


def bic(log_likelihood: float, n_free: int, total_weight: float) -> float:
    """``-2 L + D(theta) log N``, with N the sum of the sample weights; smaller is better."""
    return float(-2.0 * log_likelihood + n_free * np.log(total_weight))


def icl(log_likelihood: float, n_free: int, total_weight: float, entropy: float) -> float:
    """BIC plus twice the weighted sum of the entropies of responsibilities; smaller is better.

    The integrated completed likelihood (Biernacki, Celeux and Govaert, 2000) in its BIC approximation.
    """
    return bic(log_likelihood, n_free, total_weight) + 2.0 * entropy


@dataclass(frozen=True)
class FewSamples:
    """What has too few samples, in words, and whether that is a covariance of the noise, else an affine map."""

    text: str
    of_noise: bool


def few_samples(theta: GLLiMParameters, total_weight: float) -> FewSamples | None:
    """Whether components have too few samples for what they hold: uncertainties are too small then.

    A covariance of fewer samples than it has directions is singular but for ``reg_covar``, unless it is shrunk, and an
    affine map through hardly more samples than it has columns leaves nothing over.
    """
    counts, columns = theta.pi * total_weight, theta.A.shape[2] + 1
    size = max((len(bands) for bands in theta.structure.groups(theta.n_bands) or ()), default=1)
    wanted, what = size + columns, f"a {theta.structure.name} covariance of {size} bands"
    own = not (theta.constraints.tied_sigma or theta.constraints.shrinkage)
    of_noise = size > 1 and own and bool((counts < wanted).any())
    if not of_noise:
        wanted, what = SAMPLES_PER_COLUMN * columns, f"an affine map of {columns} columns"
        if counts.mean() >= wanted:
            return None
    few = f"{int((counts < wanted).sum())} of {len(counts)} components have fewer samples than the {wanted} that {what}"
    return FewSamples(f"{few} wants (least {counts.min():.0f})", of_noise)
