from .atomic import (
    NETCDF_LOCK,
    atomic_path,
    check_target,
    file_identity,
    locked,
    not_whole,
    put_in_place,
    write_errors,
)
from .checkpoint import CheckpointFile, FinishedFits
from .model_file import is_model, load_model, save_model
from .place import (
    GEOGRAPHIC_AXES,
    grid_mapping,
    has_places,
    is_geographic,
    refresh_transform,
    spatial_dims,
    transform_of,
)

__all__ = [
    "GEOGRAPHIC_AXES",
    "NETCDF_LOCK",
    "CheckpointFile",
    "FinishedFits",
    "atomic_path",
    "check_target",
    "file_identity",
    "grid_mapping",
    "has_places",
    "is_geographic",
    "is_model",
    "load_model",
    "locked",
    "not_whole",
    "put_in_place",
    "refresh_transform",
    "save_model",
    "spatial_dims",
    "transform_of",
    "write_errors",
]
