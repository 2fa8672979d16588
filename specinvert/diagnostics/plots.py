"""Figures of results, models and training sets, all in one place.

matplotlib is an extra: it is imported inside the functions, and only through its object-oriented interface, so no
global state and no window is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import xarray as xr

from specinvert.diagnostics.calibration_plots import plot_calibration
from specinvert.diagnostics.evaluation_plots import plot_evaluation
from specinvert.diagnostics.layout import chosen, save_figure, with_variables
from specinvert.diagnostics.map_plots import plot_maps
from specinvert.diagnostics.ranking_plots import plot_ranking
from specinvert.diagnostics.results import squeezed
from specinvert.diagnostics.spectrum_plots import plot_spectrum
from specinvert.diagnostics.table_plots import plot_table
from specinvert.diagnostics.training_plots import plot_convergence, plot_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "plot_calibration",
    "plot_convergence",
    "plot_evaluation",
    "plot_maps",
    "plot_ranking",
    "plot_results",
    "plot_spectrum",
    "plot_table",
    "plot_training",
    "save_figure",
]


def plot_results(
    results: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None
) -> Figure:
    """Draw what an inversion gave: `map_plots.plot_maps` of images, `table_plots.plot_table` of rows.

    Parameters
    ----------
    results
        Estimates along one dimension or two, with their intervals, deviations and flags.  Dimensions of size 1 do
        not count: images of one row or column are drawn as rows.
    truth
        True values on the same grid, or None.
    parameters
        Which to draw, in order; by default all that `results` (and `truth`) hold.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    ValueError
        If a parameter is missing, has neither one dimension nor two, or the grids differ.

    Examples
    --------
    >>> results = xr.Dataset({"lai": ("plot", [1.0, 2.0, 4.0])})
    >>> figure = plot_results(results, truth=results + 0.1)
    >>> len(figure.axes)
    1
    """
    truth = with_variables(truth, results)
    names = chosen(results, truth, parameters)
    results, truth = squeezed(results, names), None if truth is None else squeezed(truth, names)
    draw = plot_table if all(results[name].ndim == 1 for name in names) else plot_maps
    return draw(results, truth, parameters)
