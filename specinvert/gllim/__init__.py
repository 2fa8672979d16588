"""GLLiM on NumPy arrays: the mathematics, without labels.

Imports numpy, scipy, scikit-learn, numba and threadpoolctl only, never xarray or dask.
"""

from .constraints import Constraints
from .estimator import GLLiM
from .parameters import GLLiMParameters
from .presets import PRESETS, preset

__all__ = ["PRESETS", "Constraints", "GLLiM", "GLLiMParameters", "preset"]
