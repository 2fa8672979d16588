"""From theta to theta*, and from spectra to their posterior mixture: eq. JGMM_inverse_map and what is asked of it."""

from .committee import (
    Estimate,
    beyond,
    distance_at,
    estimates,
    log_parameter_density,
    log_tail,
    member_shares,
    stacking_weights,
)
from .forward import BLOCK_ROWS, ForwardTerms, inverse_regression
from .held_out import Marginals
from .posterior import (
    Interval,
    Pixels,
    Posterior,
    Rows,
    SideInformation,
    alike,
    posterior_blocks,
    sharing_keys,
)
from .rowwise import RowPosterior, outside_rows, residual_rows, rms_rows
from .windows import SpectralMixture, WindowPrediction, leave_out, windows

__all__ = [
    "BLOCK_ROWS",
    "Estimate",
    "ForwardTerms",
    "Interval",
    "Marginals",
    "Pixels",
    "Posterior",
    "RowPosterior",
    "Rows",
    "SideInformation",
    "SpectralMixture",
    "WindowPrediction",
    "alike",
    "beyond",
    "distance_at",
    "estimates",
    "inverse_regression",
    "leave_out",
    "log_parameter_density",
    "log_tail",
    "member_shares",
    "outside_rows",
    "posterior_blocks",
    "residual_rows",
    "rms_rows",
    "sharing_keys",
    "stacking_weights",
    "windows",
]
