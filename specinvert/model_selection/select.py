"""Choosing K and L_w: fits over a grid, compared by BIC (the paper's choice for L_w), AIC, ICL or held-out spectra."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import xarray as xr
from dask.callbacks import Callback
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..cubes import active_client, large_graphs
from ..gllim.core import fingerprint
from ..gllim.em import Settings, moments_of
from ..gllim.model import GLLiMParameters
from ..inverter import GLLiMInverter, TrainingOptions, read_settings
from ..io import FinishedFits
from ..progress import reporting
from ..scores import AXES, best_of, edges_of, require_criterion
from ..settings import AUTO
from .grid import NUMBERS, GridCell, GridJob

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SelectionProgress = Callable[[str, int, int], None]
"""Called after each fit with what was fitted, the number of fits done and that of all."""

_TAKEN = {
    "max_latent": "n_latent lists the L_w to try",
    "n_ensemble": "single fits are compared: choose first, then fit a committee of the best",
    "search_seconds": "nothing is looked for but in the grid",
    "ensemble_weights": "single fits are compared: choose first, then fit a committee of the best",
}


@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """What a grid of fits gave.

    Attributes
    ----------
    table : Dataset over ``n_components`` and ``n_latent`` of log_likelihood, n_free_parameters, bic, aic, icl,
        held_out_log_likelihood (nats a spectrum), held_out_nrmse (also over ``parameter``), n_iter, converged,
        n_removed, seconds, and failure, why a fit gave no numbers ("" where it did).
    criterion : by which the best was chosen.
    best : ``{"n_components": K, "n_latent": L_w}``.
    inverter : fitted to all of the training set with the best; None where ``refit`` was False.
    """

    table: xr.Dataset
    criterion: str
    best: dict[str, int]
    inverter: GLLiMInverter | None

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.best.items())
        return f"<Selection by {self.criterion} of {self.table['seconds'].size} fits: {shown}>"

    def plot(self) -> Figure:
        """Draw the criterion over the grid: :func:`specinvert.figures.comparison.plot_selection`."""
        from ..figures import plot_selection

        return plot_selection(self.table, self.criterion)


def select_model(
    training: xr.Dataset,
    n_components: Iterable[int] = (10, 20, 50),
    n_latent: Iterable[int] = (0, 1, 2, 3),
    criterion: str = "bic",
    *,
    held_out: float | None = 0.2,
    spectra: str | None = None,
    parameters: Sequence[str] | None = None,
    band_dim: str | None = None,
    weights: Any = None,
    noise: Any = None,
    sensor: Any = None,
    missing: str = "raise",
    rechunk: str | None = None,
    refit: bool = True,
    progress: SelectionProgress | bool | None = None,
    checkpoint: str | PathLike[str] | None = None,
    random_state: Any = 0,
    **settings: Any,
) -> Selection:
    """Fit every pair of K and L_w, and choose the best by a criterion.

    All pairs are fitted to the same samples, those not held out, and all criteria come from these fits. The fits of
    data in memory run in parallel on dask's active scheduler, a distributed Client or else threads; those of
    dask-backed data one after the other, each with all workers. Numbers are the same whatever the scheduler.

    Parameters
    ----------
    training : as :meth:`specinvert.GLLiMInverter.fit` takes it.
    n_components, n_latent : K and L_w to try, in any order.
    criterion : ``"bic"``, ``"aic"`` or ``"icl"`` of the samples fitted, the least is best; or ``"held_out"``, the
        greatest mean of log p(y, t) over the samples held out, y the spectrum and t its parameters, after transforms
        (log p(y | t) where ``gamma="flat"``).
    held_out : share of the samples held out, chosen by a hash of their values: the same in any order and chunks. None
        holds none out, the columns of these are NaN.
    spectra, parameters, band_dim, weights, noise, sensor, missing, rechunk : of :meth:`specinvert.GLLiMInverter.fit`.
        Weights are frequencies of held-out samples too.
    refit : fit the best pair again, to all samples.
    progress : False for none, True for bars, which are shown by default on a terminal and in a notebook; or a function,
        called after each fit of the grid with a label, the number done and that of all.
    checkpoint : a file in which the numbers of finished fits are kept; where it exists, a stopped selection of the same
        data, or of another grid over them, goes on without those. It is removed at the end. Fits that failed are tried
        again.
    random_state : seed of every fit and of the noise; of anything but an integer, one seed is drawn for all.
    settings : of :class:`specinvert.GLLiMInverter`, for every fit.

    Returns
    -------
    A :class:`Selection`.

    Raises
    ------
    ValueError : before any fit, what is wrong with grid, settings or data: an unknown criterion, an L_w not below the
        bands, more components than samples for L_t + 2 each, a checkpoint of other data or settings. After the fits,
        where every one failed.

    Warns
    -----
    UserWarning : the best lies at an edge of the grid, or fits failed.
    ConvergenceWarning : fits stopped at ``max_iter``: their criteria are still moving.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training = simulate_mixtures(300, noise=0.02, seed=0).isel(wavelength=slice(None, None, 10))
    >>> selection = select_model(
    ...     training, (1, 3, 20), (0, 2, 9), parameters=["ice_fraction", "haze"], tol=0.5, refit=False
    ... )
    >>> selection.best
    {'n_components': 3, 'n_latent': 2}
    >>> selection.table.bic.shape
    (3, 3)
    """
    require_criterion(criterion)
    sizes, dimensions = _grid("n_components", n_components, 1), _grid("n_latent", n_latent, 0)
    _check_held_out(held_out, criterion)
    for name, reason in _TAKEN.items():
        if name in settings:
            raise ValueError(f"{name}={settings[name]!r} does not go with a grid: {reason}")
    if settings.get("shrinkage") == AUTO:
        raise ValueError("shrinkage='auto' does not go with a grid: give a number, or fit with n_components='auto'")
    if "init" in settings and isinstance(settings["init"], GLLiMParameters):
        raise ValueError("init must be the name of a start: a model to go on from has one K and one L_w")
    plain = isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool)
    seed = int(random_state if plain else check_random_state(random_state).randint(np.iinfo(np.int32).max))
    keeper = None if checkpoint is None else FinishedFits(checkpoint)
    pairs = [(k, w) for k in sizes for w in dimensions]
    inverters = {pair: GLLiMInverter(*pair, random_state=seed, **settings) for pair in pairs}

    options = TrainingOptions(spectra, parameters, band_dim, weights, missing, rechunk, noise=noise, sensor=sensor)
    data, _ = options.read(training, inverters[pairs[0]], seed)
    job = GridJob.of(data, held_out)
    cells = [(f"K = {k}, L_w = {w}", read_settings(inverters[k, w])) for k, w in pairs]
    n_samples, n_held_out = job.check([own for _, own in cells])

    finished = None if keeper is None else _Finished(keeper, job, [own for _, own in cells])
    with reporting(progress, lambda bars: bars.selection) as report:
        fits = _fit_all(job, cells, report, finished)
    table = _tabulate(fits, sizes, dimensions, data.parameters)
    table.attrs = {"criterion": criterion, "n_samples": n_samples, "n_held_out": n_held_out}
    _tell_failures(fits, [label for label, _ in cells])
    best = best_of(table, criterion)
    chosen = {name: int(table[name][index]) for name, index in zip(AXES, best, strict=True)}
    for edge in edges_of(table, best, data.bands.size):
        warnings.warn(f"the best by {criterion} lies at the edge of the grid: {edge}", UserWarning, stacklevel=2)
    _tell_unconverged(fits, cells[0][1])
    inverter = None
    if refit:
        inverter = inverters[chosen["n_components"], chosen["n_latent"]]
        inverter.fit(training, **vars(options), progress=progress if isinstance(progress, bool | None) else False)
    if keeper is not None:
        keeper.remove()
    return Selection(table, criterion, chosen, inverter)


class _Finished:
    """The fits of a grid that a checkpoint keeps, by their number in the grid."""

    def __init__(self, keeper: FinishedFits, job: GridJob, settings: Sequence[Settings]) -> None:
        sources = [source for source in (job.data.source, job.held_out) if source is not None]
        data = fingerprint(*(values for source in sources for values in source.sum(moments_of).arrays()))
        self.keeper = keeper
        self.names = [fingerprint(bytes.fromhex(data), own.identity) for own in settings]
        keeper.begin(self.names)

    def load(self, number: int) -> GridCell | None:
        kept = self.keeper.load(self.names[number])
        return None if kept is None else GridCell(**{**kept, "nrmse": np.array(kept["nrmse"], dtype=np.float64)})

    def keep(self, number: int, cell: GridCell) -> None:
        if not cell.failure:
            values = {name: np.asarray(value).item() for name, value in cell.values.items()}
            self.keeper.keep(
                self.names[number],
                {**asdict(cell), "values": values, "nrmse": cell.nrmse.tolist(), "converged": bool(cell.converged)},
            )


def _fit(job: GridJob, settings: Settings) -> GridCell:
    """One fit, where it is done: one that memory does not hold has failed, as one that degenerates has."""
    try:
        return job.fit(settings)
    except MemoryError as error:
        nothing = np.full(len(job.data.parameters), np.nan)
        return GridCell(dict.fromkeys(NUMBERS, np.nan), nothing, failure=f"not enough memory: {error}")


def _fit_all(
    job: GridJob, cells: Sequence[tuple[str, Settings]], progress: SelectionProgress | None, finished: _Finished | None
) -> list[GridCell]:
    """The fits, in the order of the cells."""
    kept = [None if finished is None else finished.load(number) for number in range(len(cells))]
    done = {number: fitted for number, fitted in enumerate(kept) if fitted is not None}

    def take(number: int, fitted: GridCell) -> None:
        done[number] = fitted
        if finished is not None:
            finished.keep(number, fitted)
        if progress is not None:
            progress(cells[number][0], len(done), len(cells))

    left = [number for number in range(len(cells)) if number not in done]
    if job.data.is_lazy:
        for number in left:
            take(number, _fit(job, cells[number][1]))
    elif left:
        held = dask.delayed(job, traverse=False)
        _compute({number: dask.delayed(_fit, pure=False)(held, cells[number][1]) for number in left}, take)
    return [done[number] for number in range(len(cells))]


def _compute(tasks: dict[int, Any], take: Callable[[int, GridCell], None]) -> None:
    """Have dask compute numbered tasks, and give each result with its number to ``take`` when it is there."""
    numbers_of = {task.key: number for number, task in tasks.items()}

    def done(key: Any, result: Any, *_: Any) -> None:
        if key in numbers_of:
            take(numbers_of[key], result)

    client = active_client()
    if client is None:
        with Callback(posttask=done):
            dask.compute(*tasks.values())
        return
    from distributed import as_completed

    with large_graphs():  # the data go along once
        futures = client.compute(list(tasks.values()))
    for future, result in as_completed(futures, with_results=True):
        take(numbers_of[future.key], result)


def _tabulate(
    fits: Sequence[GridCell], sizes: Sequence[int], dimensions: Sequence[int], parameters: Sequence[str]
) -> xr.Dataset:
    shape = (len(sizes), len(dimensions))
    columns: dict[str, Any] = {
        name: (AXES, np.reshape([cell.values[name] for cell in fits], shape), {"long_name": text, "units": units})
        for name, (text, units) in NUMBERS.items()
    }
    columns["held_out_nrmse"] = (
        (*AXES, "parameter"),
        np.reshape([cell.nrmse for cell in fits], (*shape, len(parameters))),
        {"long_name": "root squared error over squared deviation from the mean, of held-out samples", "units": "1"},
    )
    for name, text in (("converged", "whether tol stopped EM"), ("failure", "why there are no numbers")):
        columns[name] = (AXES, np.reshape([getattr(cell, name) for cell in fits], shape), {"long_name": text})
    coords = {
        "n_components": ("n_components", list(sizes), {"long_name": "K, the number of affine maps"}),
        "n_latent": ("n_latent", list(dimensions), {"long_name": "L_w, latent dimensions"}),
        "parameter": ("parameter", np.array(parameters, dtype=str), {"long_name": "estimated parameter"}),
    }
    return xr.Dataset(columns, coords=coords)


def _tell_failures(fits: Sequence[GridCell], labels: Sequence[str]) -> None:
    failed = [f"{label} ({cell.failure})" for cell, label in zip(fits, labels, strict=True) if cell.failure]
    if len(failed) == len(fits):
        raise ValueError(f"all {len(fits)} fits failed: {failed[0]}")
    if failed:
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        warnings.warn(
            f"{len(failed)} of {len(fits)} fits failed and are left out: {'; '.join(failed[:3])}{more}",
            UserWarning,
            stacklevel=3,
        )


def _tell_unconverged(fits: Sequence[GridCell], settings: Settings) -> None:
    moving = sum(not cell.converged and not cell.failure for cell in fits)
    if moving and settings.tol > 0:
        warnings.warn(
            f"{moving} of {len(fits)} fits did not converge in max_iter={settings.max_iter} iterations, their "
            "criteria are still moving: raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=3,
        )


def _grid(name: str, values: Any, least: int) -> list[int]:
    """The values to try, ascending, each once."""
    listed = [values] if isinstance(values, numbers.Integral) else values
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise ValueError(f"{name}={values!r} must be a sequence of integers, {least} or more")
    tried = list(listed)
    wrong = [v for v in tried if not isinstance(v, numbers.Integral) or isinstance(v, bool) or v < least]
    if wrong or not tried:
        raise ValueError(f"{name}={tried!r} must hold integers, {least} or more, and at least one")
    return sorted({int(value) for value in tried})


def _check_held_out(held_out: Any, criterion: str) -> None:
    if held_out is None:
        if criterion == "held_out":
            raise ValueError("criterion='held_out' needs spectra held out: give held_out a share, such as 0.2")
        return
    if not isinstance(held_out, numbers.Real) or isinstance(held_out, bool) or not 0 < float(held_out) < 1:
        raise ValueError(f"held_out={held_out!r} must be a share above 0 and below 1, or None")
