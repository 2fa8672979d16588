"""Gaussian mixtures as such, row by row: quantiles, modes, truncation, merging, entropy, draws. Knows no theta."""

from .entropy_and_draws import crps, draws, entropy
from .mixture import Mixture, joined, merged
from .modes import (
    UNDECIDED,
    begin_count,
    count_modes,
    finish_count,
    first,
    highest_mode,
    invert_covariance,
    list_modes,
    ranked_room,
)
from .quantiles import cdf, highest_density, normal_score, quantile, score_quantile
from .truncation import Truncated, truncated, truncated_quantile, written_out

__all__ = [
    "UNDECIDED",
    "Mixture",
    "Truncated",
    "begin_count",
    "cdf",
    "count_modes",
    "crps",
    "draws",
    "entropy",
    "finish_count",
    "first",
    "highest_density",
    "highest_mode",
    "invert_covariance",
    "joined",
    "list_modes",
    "merged",
    "normal_score",
    "quantile",
    "ranked_room",
    "score_quantile",
    "truncated",
    "truncated_quantile",
    "written_out",
]
