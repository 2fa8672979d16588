"""What a model is: theta, the structures of its covariances, constraints, and what may be asked of them."""

from .constraints import AUTO, FIXABLE, Constraints
from .covariance import FULL, SINGULAR, STRUCTURES, Bands, Block, Correlated, Full, Structure
from .criteria import aic, bic, icl, n_free_parameters
from .density import mean_square, update_prior
from .parameters import GLLiMParameters, with_noise
from .residuals import TILE_ROWS, LogJoint
from .scaling import Moments, Scaling

__all__ = [
    "AUTO",
    "FIXABLE",
    "FULL",
    "SINGULAR",
    "STRUCTURES",
    "TILE_ROWS",
    "Bands",
    "Block",
    "Constraints",
    "Correlated",
    "Full",
    "GLLiMParameters",
    "LogJoint",
    "Moments",
    "Scaling",
    "Structure",
    "aic",
    "bic",
    "icl",
    "mean_square",
    "n_free_parameters",
    "update_prior",
    "with_noise",
]
