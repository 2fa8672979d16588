"""GLLiM on NumPy arrays: the mathematics, without labels.

Imports numpy, scipy, scikit-learn, numba and threadpoolctl only, never xarray or dask.
"""

from .estimator import GLLiM
from .parameters import Constraints, GLLiMParameters

__all__ = ["Constraints", "GLLiM", "GLLiMParameters"]
