"""GLLiM on NumPy arrays: the mathematics, without labels.

Imports numpy, scipy, scikit-learn, numba and threadpoolctl only, never xarray or dask.
"""

from .domain import LEAST_HELD_OUT, held_out_rows, held_out_tails, level_with_noise
from .estimator import GLLiM
from .model import Constraints, GLLiMParameters
from .presets import PRESETS, preset

__all__ = [
    "LEAST_HELD_OUT",
    "PRESETS",
    "Constraints",
    "GLLiM",
    "GLLiMParameters",
    "held_out_rows",
    "held_out_tails",
    "level_with_noise",
    "preset",
]
