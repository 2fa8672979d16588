"""Model selection: the number of free parameters and BIC (section "Latent Dimension Estimation Using BIC")."""

from __future__ import annotations

import numpy as np

from .covariance import STRUCTURES
from .parameters import Constraints


def n_free_parameters(
    n_components: int, n_bands: int, n_parameters: int, n_latent: int, constraints: Constraints
) -> int:
    """Dimension of theta, D(theta), as the paper counts it.

    The rotations that leave A_w undetermined are counted, as in the paper; the fixed prior of the latents is not.
    With iso tied Sigma and full Gamma this is K (D (L_w + L_t + 1) + L_t (L_t + 3) / 2 + 1).
    """
    maps = n_components * n_bands * (n_parameters + n_latent + 1)
    centres = n_components * n_parameters
    weights = 0 if constraints.tied_pi else n_components - 1
    gamma = STRUCTURES[constraints.gamma].n_free(n_parameters) if n_parameters else 0
    sigma = STRUCTURES[constraints.sigma].n_free(n_bands)
    gamma *= 1 if constraints.tied_gamma else n_components
    sigma *= 1 if constraints.tied_sigma else n_components
    return maps + centres + weights + gamma + sigma


def bic(log_likelihood: float, n_free: int, total_weight: float) -> float:
    """``-2 L + D(theta) log N``, with N the sum of the sample weights; smaller is better."""
    return float(-2.0 * log_likelihood + n_free * np.log(total_weight))
