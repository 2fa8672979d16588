"""What a model is: theta, the structures of its covariances, constraints, and what may be asked of them."""

from .constraints import FIXABLE, Constraints
from .covariance import AUTO, DIAG, ISO
from .parameters import GLLiMParameters, aic, bic, few_samples, icl, n_free_parameters
from .residuals import TILE_ROWS, Expected, LogJoint
from .scaling import Moments, Scaling
from .structure import FULL, SINGULAR, Structure, update_prior

__all__ = [
    "AUTO",
    "DIAG",
    "FIXABLE",
    "FULL",
    "ISO",
    "SINGULAR",
    "TILE_ROWS",
    "Constraints",
    "Expected",
    "GLLiMParameters",
    "LogJoint",
    "Moments",
    "Scaling",
    "Structure",
    "aic",
    "bic",
    "few_samples",
    "icl",
    "n_free_parameters",
    "update_prior",
]
