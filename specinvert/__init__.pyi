from . import gllim, nuisance
from .cubes import Lookup, resample, resample_noise, select_bands
from .inverter import GLLiMInverter, adapt, load_inverter, rank, reweight
from .io.reading import open_cube, orthorectify, read_lookup, register_reader
from .io.writing import save_maps
from .model_selection import Selection, select_model
from .progress import ProgressBars
from .scores import nrmse

__version__: str

__all__ = [
    "GLLiMInverter",
    "Lookup",
    "ProgressBars",
    "Selection",
    "adapt",
    "gllim",
    "load_inverter",
    "nrmse",
    "nuisance",
    "open_cube",
    "orthorectify",
    "rank",
    "read_lookup",
    "register_reader",
    "resample",
    "resample_noise",
    "reweight",
    "save_maps",
    "select_bands",
    "select_model",
]
