"""The bands of Sentinel-2's MultiSpectral Instrument: names, wavelengths, widths.

Source: ESA, Sentinel-2 MSI user guide, table of central wavelengths and bandwidths of S2A and S2B, derived
from the measured spectral responses (COPE-GSEG-EOPG-TN-15-0007).
"""

from __future__ import annotations

import re

NAMES = ("B01", "B02", "B03", "B04", "B05", "B06", "B07", "B08", "B8A", "B09", "B10", "B11", "B12")
"""In the order of the metadata's band identifiers, 0 to 12."""

SATELLITES: dict[str, tuple[tuple[float, float], ...]] = {
    "Sentinel-2A": (
        *((442.7, 21.0), (492.4, 66.0), (559.8, 36.0), (664.6, 31.0), (704.1, 15.0), (740.5, 15.0), (782.8, 20.0)),
        *((832.8, 106.0), (864.7, 21.0), (945.1, 20.0), (1373.5, 31.0), (1613.7, 91.0), (2202.4, 175.0)),
    ),
    "Sentinel-2B": (
        *((442.2, 21.0), (492.1, 66.0), (559.0, 36.0), (664.9, 31.0), (703.8, 16.0), (739.1, 15.0), (779.7, 20.0)),
        *((832.9, 106.0), (864.0, 22.0), (943.2, 21.0), (1376.9, 30.0), (1610.4, 94.0), (2185.7, 185.0)),
    ),
}
"""Centre and width of every band of `NAMES` in nanometres."""

_AUXILIARY = re.compile(
    r"(AOT|WVP|SCL|SNW|CLD|TCI(_[RGB])?|QA(10|20|60)|MSK_\w+|CLOUD\w*|SNOW\w*|DATAMASK)", re.IGNORECASE
)


def band_name(text: str | None) -> str | None:
    """The name of `NAMES` that a band is called by: "B1", "b01", "Band 8A", "B08_20m", "B2 (490 nm)"; else None."""
    found = re.fullmatch(
        r"(?:B|BAND)[ _-]?0?(1[0-2]|[1-9]|8A)(?:[ _][126]0 ?M| *\(.*\))?", (text or "").strip().upper()
    )
    if found is None:
        return None
    return f"B{found[1].zfill(2)}"


def is_auxiliary(text: str | None) -> bool:
    """Tell whether a band of this name is a layer delivered with the reflectance, such as the scene classes."""
    return _AUXILIARY.fullmatch((text or "").strip()) is not None
