"""The methods that GLLiM is compared with, as scikit-learn regressors."""

from .methods import METHODS, make_method
from .regressors import JGMMRegressor, SIRRegressor
from .rvm import KERNELS, RVMRegressor, rvm_search

__all__ = ["KERNELS", "METHODS", "JGMMRegressor", "RVMRegressor", "SIRRegressor", "make_method", "rvm_search"]
