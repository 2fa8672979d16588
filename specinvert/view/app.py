"""From paths to pages: what is shown is opened once, and each browser gets a page of its own."""

from __future__ import annotations

import os

import xarray as xr
from bokeh.document import Document

from specinvert.diagnostics.fitted import model_of
from specinvert.inverter import GLLiMInverter, load_inverter
from specinvert.io.open import open_cube

from .given import Given
from .maps import MapSource, open_maps
from .page import Page
from .pixel import PixelReader


class Viewer:
    """What a page is made from: maps, the cube that they are of, and the model.

    Parameters
    ----------
    maps : path of a netCDF file, Zarr store, GeoTIFF or table, a Dataset, or a MapSource. Files are read as far as
        they are shown.
    cube : path of a file that :func:`specinvert.open_cube` opens, or spectra with labels; None for none.
    model : path of a model, or a fitted GLLiMInverter; None for none.
    given : noise, known parameters and other options for the spectrum that is clicked; None for none.

    Raises
    ------
    FileNotFoundError, PermissionError : of a path.
    ValueError : no maps, a cube of other pixels, one that does not fit the model, a model that is not fitted, or
        noise or known parameters that do not fit cube and model.
    """

    def __init__(
        self,
        maps: str | os.PathLike[str] | xr.Dataset | MapSource,
        cube: str | os.PathLike[str] | xr.DataArray | xr.Dataset | None = None,
        model: str | os.PathLike[str] | GLLiMInverter | None = None,
        given: Given | None = None,
    ) -> None:
        self.source = open_maps(maps)
        inverter = load_inverter(os.fspath(model)) if isinstance(model, str | os.PathLike) else model
        spectra = open_cube(cube) if isinstance(cube, str | os.PathLike) else cube
        if inverter is not None:
            model_of(inverter)
        self.reader = PixelReader(self.source, spectra, inverter, given)

    def __call__(self, document: Document) -> None:
        """Put a page of its own into a document of bokeh."""
        Page(self.source, self.reader).attach(document)
