from .describe import describe_file
from .open import IN_MEMORY_BYTES, choose_reader, open_cube, open_dataset
from .products import register_reader
from .products.csv import SUFFIXES, read_columns
from .products.emit import in_blocks, orthorectify, read_lookup
from .products.netcdf import open_group
from .products.raster import open_gdal

__all__ = [
    "IN_MEMORY_BYTES",
    "SUFFIXES",
    "choose_reader",
    "describe_file",
    "in_blocks",
    "open_cube",
    "open_dataset",
    "open_gdal",
    "open_group",
    "orthorectify",
    "read_columns",
    "read_lookup",
    "register_reader",
]
