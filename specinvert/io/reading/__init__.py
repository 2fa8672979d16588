"""`open_cube` and the readers behind it: one module a product, one convention for what comes out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
