"""Simulators that make training sets, and the reflectance models that they are made with."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
