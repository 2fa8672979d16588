"""The methods that GLLiM is compared with, as scikit-learn regressors."""

from .jgmm import JGMMRegressor
from .methods import METHODS, make_method
from .rvm import KERNELS, RVMRegressor, rvm_search
from .sir import SIRRegressor

__all__ = ["KERNELS", "METHODS", "JGMMRegressor", "RVMRegressor", "SIRRegressor", "make_method", "rvm_search"]
