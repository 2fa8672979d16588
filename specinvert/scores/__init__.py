"""Numbers on models and maps, no drawing: errors, calibration, rankings, findings."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
