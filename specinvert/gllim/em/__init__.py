"""Training: EM over chunks, its starts, its statistics, its M-steps and its variants."""

from .em import State, Stopping, run_em
from .fixing import check_names
from .initialize import PrincipalGrid, basis, regular_grid
from .maximization import Fixed
from .source import (
    ArrayChunks,
    Chunk,
    ChunkSource,
    DataMoments,
    Mask,
    Sum,
    available_cpus,
    check_responsibilities,
    check_weights,
    evenly_spaced,
    join,
    moments_of,
    sum_blocks,
)
from .statistics import density_and_entropy, log_joint_density
from .training import (
    Checkpoint,
    ColumnNames,
    FitProgress,
    Settings,
    Training,
    check_data,
    check_progress,
    member_settings,
    problem_of,
    train,
    train_members,
)

__all__ = [
    "ArrayChunks",
    "Checkpoint",
    "Chunk",
    "ChunkSource",
    "ColumnNames",
    "DataMoments",
    "FitProgress",
    "Fixed",
    "Mask",
    "PrincipalGrid",
    "Settings",
    "State",
    "Stopping",
    "Sum",
    "Training",
    "available_cpus",
    "basis",
    "check_data",
    "check_names",
    "check_progress",
    "check_responsibilities",
    "check_weights",
    "density_and_entropy",
    "evenly_spaced",
    "join",
    "log_joint_density",
    "member_settings",
    "moments_of",
    "problem_of",
    "regular_grid",
    "run_em",
    "sum_blocks",
    "train",
    "train_members",
]
