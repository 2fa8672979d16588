"""Simulated spectra to trained GLLiM models, image cubes to parameter maps with uncertainties.

Importing specinvert registers the ``.gllim`` accessor; everything else is loaded when first used.
"""

from .interrupts import leave_quietly_on_interrupt

leave_quietly_on_interrupt()  # before what takes longest, the import of xarray

import lazy_loader  # noqa: E402

from . import accessor as accessor  # noqa: E402
from ._version import __version__ as __version__  # noqa: E402

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
