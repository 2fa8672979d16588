"""Noise along bands for cubes of the tests."""

from typing import Any

import numpy as np
import xarray as xr

PIXELS = (5, 6)
"""Shape of the cube without its bands."""
DEVIATIONS = np.linspace(0.01, 0.06, 8)
"""Noise of each band."""


def along_bands(values: Any, nanometres: Any, *dims: str) -> xr.DataArray:
    """Noise over ``dims`` and bands of wavelengths given in micrometres."""
    wavelength = ("band", np.asarray(nanometres) / 1000.0, {"units": "um"})
    return xr.DataArray(values, dims=(*dims, "band"), coords={"wavelength": wavelength}, attrs={"units": "1"})
