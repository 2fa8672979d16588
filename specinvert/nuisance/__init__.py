"""Nuisance models for training sets: what separates a measured spectrum from a simulated one, drawn at random.

``specinvert.nuisance.apply(training, [ThinCloud(), Discrepancy(0.02, 80.0), Noise(white=0.005)], seed=0)`` returns the
training set with every spectrum changed by its own draw.
"""

from .base import Chain, Draws, Nuisance
from .driver import apply
from .errors import Discrepancy, Gain, Noise, Offset, WavelengthShift
from .scene import Background, Haze, ThinCloud

__all__ = [
    "Background",
    "Chain",
    "Discrepancy",
    "Draws",
    "Gain",
    "Haze",
    "Noise",
    "Nuisance",
    "Offset",
    "ThinCloud",
    "WavelengthShift",
    "apply",
]
