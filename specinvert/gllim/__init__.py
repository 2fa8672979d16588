"""GLLiM on NumPy arrays: the mathematics, without labels.

Imports numpy, scipy, scikit-learn, numba and threadpoolctl only, never xarray or dask.
"""

from .domain import LEAST_HELD_OUT, held_out_rows, held_out_tails, level_with_noise
from .estimator import GLLiM
from .model import Constraints, GLLiMParameters
from .presets import PRESETS, preset
from .search import SEARCHED_ROWS, SMALL, Candidate, Found, Search, Trial, candidate_settings, splits

__all__ = [
    "LEAST_HELD_OUT",
    "PRESETS",
    "SEARCHED_ROWS",
    "SMALL",
    "Candidate",
    "Constraints",
    "Found",
    "GLLiM",
    "GLLiMParameters",
    "Search",
    "Trial",
    "candidate_settings",
    "held_out_rows",
    "held_out_tails",
    "level_with_noise",
    "preset",
    "splits",
]
