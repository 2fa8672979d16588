"""Everything drawn: maps, spectra, evaluations, rankings, the report.

matplotlib is an extra: it is imported inside the functions, and only through its object-oriented interface, so no
global state and no window is touched.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
