"""`GLLiMInverter`: labelled simulations in, a trained model; labelled spectra in, labelled parameter maps out."""

from .adaptation import adapt
from .calibration import Calibrated, calibrated
from .explanation import (
    EvaluatedSample,
    Explanation,
    Marginal,
    evaluate_sample,
    explain,
    lacking_noise,
    noise_variance,
    recalibrated,
)
from .fit import KEPT, TrainingOptions, column_names, is_automatic, read_settings
from .inversion import Inversion
from .inverter import GLLiMInverter, inversion_of, load_inverter, model_of
from .predictive import ExpectedSpectrum
from .prior import reweight
from .ranking import rank

__all__ = [
    "KEPT",
    "Calibrated",
    "EvaluatedSample",
    "ExpectedSpectrum",
    "Explanation",
    "GLLiMInverter",
    "Inversion",
    "Marginal",
    "TrainingOptions",
    "adapt",
    "calibrated",
    "column_names",
    "evaluate_sample",
    "explain",
    "inversion_of",
    "is_automatic",
    "lacking_noise",
    "load_inverter",
    "model_of",
    "noise_variance",
    "rank",
    "read_settings",
    "recalibrated",
    "reweight",
]
