"""`GLLiMInverter`: labelled simulations in, a trained model; labelled spectra in, labelled parameter maps out."""

from .evaluated import EvaluatedSample, evaluate_sample, lacking_noise
from .fit import KEPT, add_noise, band_name, read_settings
from .inverter import GLLiMInverter, load_inverter, model_of

__all__ = [
    "KEPT",
    "EvaluatedSample",
    "GLLiMInverter",
    "add_noise",
    "band_name",
    "evaluate_sample",
    "lacking_noise",
    "load_inverter",
    "model_of",
    "read_settings",
]
