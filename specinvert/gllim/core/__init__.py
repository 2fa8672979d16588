"""What every other wing of the mathematics stands on: compiled kernels, arrays kept between blocks, threads."""

from .arrays import LOG_2PI, Array, row_hash
from .kernels import (
    NEGLIGIBLE,
    accumulate_rows,
    accumulate_squares,
    centre_rows,
    compiled,
    expand_rows,
    factor,
    form_rows,
    inlined,
    normalize_rows,
    prior_rows,
    scale_rows,
    solve,
    solve_identity,
    summing,
)
from .threads import one_blas_thread
from .workspace import Workspace

__all__ = [
    "LOG_2PI",
    "NEGLIGIBLE",
    "Array",
    "Workspace",
    "accumulate_rows",
    "accumulate_squares",
    "centre_rows",
    "compiled",
    "expand_rows",
    "factor",
    "form_rows",
    "inlined",
    "normalize_rows",
    "one_blas_thread",
    "prior_rows",
    "row_hash",
    "scale_rows",
    "solve",
    "solve_identity",
    "summing",
]
