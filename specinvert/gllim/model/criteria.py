"""Model selection: the number of free parameters, AIC, BIC and ICL.

The paper chooses L_w by BIC (section "Latent Dimension Estimation Using BIC").
"""

from __future__ import annotations

import numpy as np

from .constraints import Constraints
from .covariance import STRUCTURES


def n_free_parameters(
    n_components: int,
    n_bands: int,
    n_parameters: int,
    n_latent: int,
    constraints: Constraints,
    rotations: bool = True,
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
    if constraints.gamma != "flat" and "c" not in fixed:
        count += n_components * n_parameters
    if constraints.gamma != "flat" and "Gamma" not in fixed and n_parameters:
        own = STRUCTURES[constraints.gamma].n_free(n_parameters)
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
