"""Results of an inversion, images or rows: read once for figures and tables alike, and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from ..flags import FLAG_NAME, FLAG_VARIABLE, flag_shares
from .layout import chosen, given_in_advance, with_variables
from .maps import MapSample, draw_maps, plot_maps, sample_maps
from .table import plot_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Results:
    """Results in memory, images thinned; ``flag_shares`` are those of all pixels, "none" first, empty without flags."""

    names: list[str]
    data: xr.Dataset
    truth: xr.Dataset | None
    flag_shares: dict[str, float]
    attrs: dict[Any, Any]
    image: MapSample | None

    @property
    def is_image(self) -> bool:
        """Whether there are two dimensions."""
        return self.image is not None

    def draw(self) -> Figure:
        """The figure of `plot_maps` for images, of `plot_table` for rows."""
        if self.image is not None:
            return draw_maps(self.image)
        given = given_in_advance(self.data, self.names)
        return plot_table(self.data, self.truth, [name for name in self.names if name not in given])


def read_results(
    results: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None
) -> Results:
    """Read results along one dimension or two, computed once; ValueError where they are neither, or grids differ.

    Dimensions of size 1 do not count: images of one row or column are rows.
    """
    truth = with_variables(truth, results)
    names = chosen(results, truth, parameters)
    results, truth = squeezed(results, names), None if truth is None else squeezed(truth, names)
    if all(results[name].ndim == 1 for name in names):
        data = results.compute()
        shares = flag_shares(data[FLAG_VARIABLE]) if FLAG_VARIABLE in data else None
        return Results(names, data, truth, _by_name(shares), results.attrs, None)
    image = sample_maps(results, truth, names, leave_given=True)
    return Results(names, image.maps, image.truth, _by_name(image.shares), results.attrs, image)


def squeezed(data: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    """The data without dimensions of size 1, as long as the variables ``names`` keep one dimension."""
    dims = list(dict.fromkeys(dim for name in names for dim in data[name].dims))
    single = [dim for dim in dims if data.sizes[dim] == 1]
    return data.isel(dict.fromkeys(single if len(single) < len(dims) else single[:-1], 0))


def _by_name(shares: xr.DataArray | None) -> dict[str, float]:
    if shares is None:
        return {}
    return {str(name): float(share) for name, share in zip(shares[FLAG_NAME].values, shares.values, strict=True)}


def plot_results(
    results: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None
) -> Figure:
    """Draw what an inversion gave: `plot_maps` of images, `plot_table` of rows.

    Parameters
    ----------
    results : estimates along one dimension or two, with their intervals, deviations and flags. Dimensions of size 1 do
        not count: images of one row or column are drawn as rows.
    truth : true values on the same grid, or None.
    parameters : which to draw, in order; by default all that `results` (and `truth`) hold.

    Returns
    -------
    A matplotlib Figure; see `save_figure`.

    Raises
    ------
    ImportError : matplotlib is missing.
    ValueError : a parameter is missing, has neither one dimension nor two, or the grids differ.

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
