"""Model selection, the number of free parameters, AIC, BIC and ICL, and whether samples suffice for a model.

The paper chooses L_w by BIC (section "Latent Dimension Estimation Using BIC").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .constraints import Constraints

if TYPE_CHECKING:
    from .parameters import GLLiMParameters

SAMPLES_PER_COLUMN = 3
"""Samples that a component needs, for each column of its affine map, to leave a noise to estimate."""


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

    A covariance of fewer samples than it has directions is singular but for ``reg_covar``, and an affine map through
    hardly more samples than it has columns leaves nothing over.
    """
    counts, columns = theta.pi * total_weight, theta.A.shape[2] + 1
    size = max((len(bands) for bands in theta.structure.groups(theta.n_bands) or ()), default=1)
    wanted, what = size + columns, f"a {theta.structure.name} covariance of {size} bands"
    of_noise = size > 1 and not theta.constraints.tied_sigma and bool((counts < wanted).any())
    if not of_noise:
        wanted, what = SAMPLES_PER_COLUMN * columns, f"an affine map of {columns} columns"
        if counts.mean() >= wanted:
            return None
    few = f"{int((counts < wanted).sum())} of {len(counts)} components have fewer samples than the {wanted} that {what}"
    return FewSamples(f"{few} wants (least {counts.min():.0f})", of_noise)
