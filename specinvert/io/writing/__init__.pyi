from .blocks import BlockProgress, side_folder
from .stores import flag_name
from .writers import save_maps

__all__ = [
    "BlockProgress",
    "flag_name",
    "save_maps",
    "side_folder",
]
