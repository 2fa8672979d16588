"""Results of an inversion, read once for figures and tables alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xarray as xr

from specinvert.diagnostics.flags import FLAG_NAME, FLAG_VARIABLE, flag_shares
from specinvert.diagnostics.layout import chosen
from specinvert.diagnostics.map_plots import MapSample, draw_maps, sample_maps
from specinvert.diagnostics.table_plots import plot_table

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
        return plot_table(self.data, self.truth, self.names) if self.image is None else draw_maps(self.image)


def read_results(
    results: xr.Dataset, truth: xr.Dataset | None = None, parameters: Sequence[str] | None = None
) -> Results:
    """Read results along one dimension or two, computed once; ValueError where they are neither, or grids differ."""
    names = chosen(results, truth, parameters)
    if all(results[name].ndim == 1 for name in names):
        data = results.compute()
        shares = flag_shares(data[FLAG_VARIABLE]) if FLAG_VARIABLE in data else None
        return Results(names, data, truth, _by_name(shares), results.attrs, None)
    image = sample_maps(results, truth, names)
    return Results(names, image.maps, image.truth, _by_name(image.shares), results.attrs, image)


def _by_name(shares: xr.DataArray | None) -> dict[str, float]:
    if shares is None:
        return {}
    return {str(name): float(share) for name, share in zip(shares[FLAG_NAME].values, shares.values, strict=True)}
