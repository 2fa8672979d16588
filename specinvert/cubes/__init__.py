"""xarray and dask: bands, units, nodata and the lazy inversion engine."""
