"""Simulated spectra to trained GLLiM models, image cubes to parameter maps with uncertainties.

Importing specinvert registers the ``.gllim`` accessor; everything else is loaded when first used.
"""

from __future__ import annotations

from .interrupts import leave_quietly_on_interrupt

leave_quietly_on_interrupt()  # before what takes longest, the import of xarray

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from . import accessor as accessor  # noqa: E402

if TYPE_CHECKING:
    from .cubes.orthorectify import Lookup as Lookup
    from .cubes.resampling import resample as resample
    from .cubes.resampling import resample_noise as resample_noise
    from .cubes.selection import select_bands as select_bands
    from .diagnostics.metrics import nrmse as nrmse
    from .inverter import GLLiMInverter as GLLiMInverter
    from .inverter import load_inverter as load_inverter
    from .io.open import open_cube as open_cube
    from .io.orthorectify import orthorectify as orthorectify
    from .io.orthorectify import read_lookup as read_lookup
    from .io.readers import register_reader as register_reader
    from .io.writers import save_maps as save_maps
    from .model_selection import Selection as Selection
    from .model_selection import select_model as select_model

__version__ = "0.1.0"

_PUBLIC = {
    "GLLiMInverter": "inverter",
    "Lookup": "cubes.orthorectify",
    "load_inverter": "inverter",
    "nrmse": "diagnostics.metrics",
    "open_cube": "io.open",
    "orthorectify": "io.orthorectify",
    "read_lookup": "io.orthorectify",
    "register_reader": "io.readers",
    "resample": "cubes.resampling",
    "resample_noise": "cubes.resampling",
    "save_maps": "io.writers",
    "select_bands": "cubes.selection",
    "Selection": "model_selection",
    "select_model": "model_selection",
}
_MODULES = ("gllim", "nuisance")

__all__ = [
    "GLLiMInverter",
    "Lookup",
    "Selection",
    "gllim",
    "load_inverter",
    "nrmse",
    "nuisance",
    "open_cube",
    "orthorectify",
    "read_lookup",
    "register_reader",
    "resample",
    "resample_noise",
    "save_maps",
    "select_bands",
    "select_model",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f".{_PUBLIC[name]}", __name__), name)
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
