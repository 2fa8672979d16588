"""The accessor ``.gllim`` on DataArray and Dataset: wraps functions, holds nothing but the object."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Any

import xarray as xr

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .inverter import GLLiMInverter


class _Accessor:
    def __init__(self, data: Any) -> None:
        self._data = data

    def invert(self, inverter: GLLiMInverter | str | PathLike[str], **options: Any) -> xr.Dataset:
        """Parameter maps of these spectra: :meth:`specinvert.GLLiMInverter.invert`.

        ``inverter`` is a fitted inverter, or the path of a model file.
        """
        return _inverter(inverter).invert(self._data, **options)

    def posterior(self, inverter: GLLiMInverter | str | PathLike[str], **options: Any) -> xr.Dataset:
        """The posterior mixture of these spectra: :meth:`specinvert.GLLiMInverter.posterior`."""
        return _inverter(inverter).posterior(self._data, **options)


@xr.register_dataarray_accessor("gllim")  # type: ignore[no-untyped-call]
class GLLiMDataArrayAccessor(_Accessor):
    """``cube.gllim.invert(inverter)`` on a DataArray of spectra."""


@xr.register_dataset_accessor("gllim")  # type: ignore[no-untyped-call]
class GLLiMDatasetAccessor(_Accessor):
    """``training.gllim.fit(...)``, ``cube.gllim.invert(inverter)`` and ``maps.gllim.plot()`` on a Dataset."""

    def fit(self, *args: Any, **options: Any) -> GLLiMInverter:
        """Train a :class:`specinvert.GLLiMInverter` on this Dataset, and return it.

        Takes the arguments of its ``fit`` and, by keyword, the settings of the inverter.

        Examples
        --------
        >>> from specinvert.physics.mixing import simulate_mixtures
        >>> training = simulate_mixtures(300, noise=0.01, seed=0)
        >>> inverter = training.gllim.fit(parameters=["ice_fraction"], n_components=3, tol=0.1, random_state=0)
        >>> maps = training.reflectance[:2].gllim.invert(inverter)
        >>> list(maps), maps.ice_fraction.dims
        (['ice_fraction', 'ice_fraction_std', 'quality_flag'], ('sample',))
        >>> bool(training.gllim.evaluate(inverter).nrmse[0] < 1)  # better than the mean of the truth
        True
        """
        from .inverter import GLLiMInverter

        names = signature(GLLiMInverter).parameters
        settings = {name: options.pop(name) for name in list(options) if name in names}
        return GLLiMInverter(**settings).fit(self._data, *args, **options)

    def evaluate(self, inverter: GLLiMInverter | str | PathLike[str], **options: Any) -> xr.Dataset:
        """Compare estimates with the parameters in this Dataset: :meth:`specinvert.GLLiMInverter.evaluate`."""
        return _inverter(inverter).evaluate(self._data, **options)

    def plot(self, parameters: Sequence[str] | None = None, truth: xr.Dataset | None = None) -> Figure:
        """Draw these results, maps or rows: :func:`specinvert.figures.plot_results`.

        A matplotlib Figure; ``specinvert.figures.save_figure`` writes it.
        """
        from .figures import plot_results

        return plot_results(self._data, truth, parameters)


def _inverter(given: GLLiMInverter | str | PathLike[str]) -> GLLiMInverter:
    from .inverter import GLLiMInverter, load_inverter

    if isinstance(given, GLLiMInverter):
        return given
    if isinstance(given, str | PathLike):
        return load_inverter(given)
    raise TypeError(f"expected a GLLiMInverter or the path of a model file, not {type(given).__name__}")
