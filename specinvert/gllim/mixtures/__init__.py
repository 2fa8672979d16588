"""Gaussian mixtures as such, row by row: quantiles, modes, truncation, merging, entropy, draws. Knows no theta."""

from .bends import BENT, Bends
from .entropy_and_draws import crps, draws, entropy, marginal_entropy
from .mixture import ONE_ALONE, PLAIN, Mixture, joined, merged, separated, two_solutions, two_solutions_room
from .modes import FAINT, count_modes, highest_mode, list_modes
from .quantiles import Normals, cdf, highest_density, normal_score, quantile, score_quantile
from .truncation import Truncated, truncated, truncated_quantile, written_out

__all__ = [
    "BENT",
    "FAINT",
    "ONE_ALONE",
    "PLAIN",
    "Bends",
    "Mixture",
    "Normals",
    "Truncated",
    "cdf",
    "count_modes",
    "crps",
    "draws",
    "entropy",
    "highest_density",
    "highest_mode",
    "joined",
    "list_modes",
    "marginal_entropy",
    "merged",
    "normal_score",
    "quantile",
    "score_quantile",
    "separated",
    "truncated",
    "truncated_quantile",
    "two_solutions",
    "two_solutions_room",
    "written_out",
]
