"""xarray and dask: bands, units, nodata, declared outputs and the lazy inversion engine."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
