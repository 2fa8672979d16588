"""The array type of the numerical core."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
"""Floating-point arrays; computations are in float64, input may be float32."""
