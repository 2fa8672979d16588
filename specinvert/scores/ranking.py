"""Which model suits spectra without labels best: the mean log density that each gives to them.

Evidence favours narrow training intervals, as long as they hold the scene, and says nothing about parameters that the
spectra do not see. Only models of the same bands and units are comparable: log p(y) is the log of a density over the
bands, so another set of bands or another unit shifts it by amounts that mean nothing.

Standard errors are paired: of the mean of the differences, spectrum by spectrum. They take spectra as independent;
neighbouring pixels of a scene are not, and then the errors are larger.

A table of fits over a grid of K and L_w, as :func:`specinvert.select_model` makes, says which is the best, and whether
it lies at the grid's edge.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import add, and_
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from ..cubes import check_units
from .metrics import aligned, format_number

if TYPE_CHECKING:
    from ..cubes import Bands
    from ..model import Model


CAVEAT = "Evidence favours narrow training intervals; only models of the same bands and units are comparable."
"""What to keep in mind when reading a ranking."""

SAME_BAND_NM = 0.01
"""Wavelengths that differ by less are those of one band, rounded."""

_COLUMNS = {
    "mean_log_evidence": "mean log density of a spectrum under the model, nats",
    "difference": "mean log density less that of the best model, nats a spectrum",
    "standard_error": "standard error of the difference, paired over spectra taken as independent",
    "best_share": "share of spectra to which the model gives the greatest density, ties divided",
    "n": "number of spectra compared, those that every model can use",
    "n_usable": "number of spectra that the model can use",
}


def rank(evidences: Mapping[str, xr.DataArray]) -> xr.Dataset:
    """Rank models by the mean log evidence that they give to the same spectra.

    Evidence favours narrow training intervals; only models of the same bands and units are comparable.

    Parameters
    ----------
    evidences : the output ``log_evidence`` of each model by its name, of the same spectra, dimensions in any order,
        lazy or not. Lazy ones are reduced in one computation. Spectra that are NaN or infinite in any are left out of
        all.

    Returns
    -------
    Dataset over `model`, best first, in memory: `mean_log_evidence`, nats a spectrum; `difference` from the best (0,
    else negative) and its paired `standard_error` (NaN for a single spectrum); `best_share`, of the spectra for which
    the model is the best; `n`, the number compared; `n_usable`, the number that the model alone could use. Of one model
    `mean_log_evidence` and `n` only. The attribute `n_spectra` counts all.

    Raises
    ------
    TypeError : an entry is not a DataArray.
    ValueError : there is no model, dimensions, sizes or coordinates differ, or no spectrum is finite in all.

    Examples
    --------
    >>> first = xr.DataArray([3.0, 5.0, np.nan], dims="pixel")
    >>> table = rank({"a": first, "b": first + 1.0})
    >>> table["model"].values.tolist(), table["difference"].values.tolist()
    (['b', 'a'], [0.0, -1.0])
    """
    arrays = _same_grid(evidences)
    names = list(arrays)
    with warnings.catch_warnings():
        # a single spectrum has no standard error, and none at all no mean: both are dealt with below
        warnings.simplefilter("ignore", RuntimeWarning)
        sums = _reductions(list(arrays.values())).compute()
    n, usable = int(sums["n"]), [int(sums[f"usable_{i}"]) for i in range(len(names))]
    total = arrays[names[0]].size
    if n == 0:
        counts = ", ".join(f"{name} {count}" for name, count in zip(names, usable, strict=True))
        raise ValueError(f"no spectrum of {total} can be used by every model (usable: {counts}); leave a model out")

    means = np.array([float(sums[f"mean_{i}"]) for i in range(len(names))])
    order = np.argsort(-means, kind="stable")
    best = int(order[0])
    columns: dict[str, list[float] | list[int]] = {"mean_log_evidence": list(means[order])}
    if len(names) > 1:
        gaps = [_gap(sums, int(i), best) for i in order]
        columns["difference"] = [mean for mean, _ in gaps]
        columns["standard_error"] = [np.sqrt(variance / n) for _, variance in gaps]
        columns["best_share"] = [float(sums[f"share_{i}"]) for i in order]
    columns["n"] = [n] * len(names)
    if len(names) > 1:
        columns["n_usable"] = [usable[i] for i in order]
    return xr.Dataset(
        {name: ("model", values, {"long_name": _COLUMNS[name], "units": "1"}) for name, values in columns.items()},
        coords={"model": ("model", [names[i] for i in order], {"long_name": "model, best first"})},
        attrs={"n_spectra": total, "comment": CAVEAT},
    )


def format_ranking(table: xr.Dataset) -> str:
    """Lay out a ranking as aligned plain text, a heading and one line a model.

    Examples
    --------
    >>> print(format_ranking(rank({"a": xr.DataArray([3.0, 5.0], dims="pixel")})))
    model  mean_log_evidence  n
    a                      4  2
    """
    columns = [["model", *map(str, table["model"].values)]]
    columns += [[str(name), *map(format_number, values.values)] for name, values in table.data_vars.items()]
    return aligned(list(zip(*columns, strict=True)))


def require_comparable(models: Mapping[str, Model]) -> None:
    """Raise ValueError unless all models are of the same bands, in any order, and of spectra in the same units."""
    first, *others = models
    for name in others:
        difference = _band_difference(models[first].bands, models[name].bands)
        if difference:
            raise ValueError(
                f"models {first!r} and {name!r} are not comparable, {difference}: train them on the same bands"
            )
        units = models[first].spectra_units, models[name].spectra_units
        try:
            check_units(*units, name)
        except ValueError:
            raise ValueError(
                f"models {first!r} and {name!r} are not comparable, their spectra are in {units[0]!r} and "
                f"{units[1]!r}: train them on spectra in the same units"
            ) from None


def model_names(paths: Sequence[Path]) -> list[str]:
    """Short names for model files: without folder and suffix where that tells them apart; ValueError on repetition."""
    repeated = [path for i, path in enumerate(paths) if path.resolve() in {p.resolve() for p in paths[:i]}]
    if repeated:
        raise ValueError(f"{repeated[0]}: the model is given twice")
    stems = [path.stem for path in paths]
    return stems if len(set(stems)) == len(stems) else [str(path) for path in paths]


def _same_grid(evidences: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    """Evidences in one order of dimensions, in float64 and without coordinates, to pair by position."""
    if not evidences:
        raise ValueError("there is no model to rank; give the log_evidence of at least one")
    for name, array in evidences.items():
        if not isinstance(array, xr.DataArray):
            raise TypeError(
                f"evidence of {name!r} is a {type(array).__name__}; give a DataArray, such as maps['log_evidence']"
            )
    first_name, first = next(iter(evidences.items()))
    arrays = {}
    for name, array in evidences.items():
        if set(array.dims) != set(first.dims) or any(array.sizes[dim] != first.sizes[dim] for dim in first.dims):
            raise ValueError(
                f"evidence of {name!r} has sizes {dict(array.sizes)} but that of {first_name!r} {dict(first.sizes)}; "
                "rank models on the same spectra"
            )
        for dim in first.dims:
            if dim in array.indexes and dim in first.indexes and not array.indexes[dim].equals(first.indexes[dim]):
                raise ValueError(
                    f"{dim} of the evidence of {name!r} differs from that of {first_name!r}; rank models on the same "
                    "spectra"
                )
        bare = array.transpose(*first.dims).variable.astype(np.float64, keep_attrs=False)
        arrays[str(name)] = xr.DataArray(bare)
    return arrays


def _reductions(arrays: list[xr.DataArray]) -> xr.Dataset:
    """Scalars that a ranking needs, lazy where the input is: moments of each pair's differences among them."""
    usable = [np.isfinite(array) for array in arrays]
    common = reduce(and_, usable)
    kept = [array.where(common, 0.0) for array in arrays]
    top = reduce(lambda first, other: first.where(first >= other, other), kept)
    ties = reduce(add, [(array == top).astype(np.int64) for array in kept])
    sums = {"n": common.sum()}
    for i, array in enumerate(kept):
        sums[f"usable_{i}"] = usable[i].sum()
        sums[f"mean_{i}"] = array.where(common).mean()
        sums[f"share_{i}"] = ((array == top) / ties).where(common).mean()
    for i, j in combinations(range(len(kept)), 2):
        gap = (kept[i] - kept[j]).where(common)
        sums[f"gap_{i}_{j}"], sums[f"variance_{i}_{j}"] = gap.mean(), gap.var(ddof=1)
    return xr.Dataset(sums)


def _gap(sums: xr.Dataset, i: int, best: int) -> tuple[float, float]:
    """Mean and variance of the difference of model ``i`` from the best."""
    if i == best:
        return 0.0, 0.0
    pair = f"{min(i, best)}_{max(i, best)}"
    mean = float(sums[f"gap_{pair}"])
    return mean if i < best else -mean, float(sums[f"variance_{pair}"])


def _band_difference(first: Bands, other: Bands) -> str:
    """How two band axes differ; "" where they hold the same bands."""
    if first.size != other.size:
        return f"of {first.size} and {other.size} bands"
    if first.wavelength is not None and other.wavelength is not None:
        a, b = np.sort(first.wavelength), np.sort(other.wavelength)
        apart = np.flatnonzero(np.abs(a - b) > SAME_BAND_NM)
        if not apart.size:
            return ""
        return f"{apart.size} of {a.size} bands differ ({a[apart[0]]:g} and {b[apart[0]]:g} nm)"
    if first.wavelength is not None or other.wavelength is not None:
        return "one has wavelengths and the other none"
    if first.labels is None or other.labels is None or sorted(map(str, first.labels)) == sorted(map(str, other.labels)):
        return ""
    return "their band labels differ"


CRITERIA = {"bic": "bic", "aic": "aic", "icl": "icl", "held_out": "held_out_log_likelihood"}
"""The variable of each criterion; the greatest held-out likelihood is the best, the least of the others."""

AXES = ("n_components", "n_latent")

_SHOWN = ("log_likelihood", "n_free_parameters", *CRITERIA.values(), "n_iter", "converged", "n_removed", "seconds")


def require_criterion(criterion: str) -> None:
    """Raise ValueError where there is no such criterion."""
    if criterion not in CRITERIA:
        raise ValueError(f"criterion={criterion!r} is not one of {', '.join(map(repr, CRITERIA))}")


def scores_of(table: xr.Dataset, criterion: str) -> np.ndarray:
    """The criterion (n_components, n_latent), NaN where a fit failed; ValueError where there is none at all."""
    require_criterion(criterion)
    scores = np.asarray(table[CRITERIA[criterion]].transpose(*AXES).values, dtype=np.float64)
    if not np.isfinite(scores).any():
        raise ValueError(f"the table holds no {criterion}: no fit succeeded, or no spectra were held out")
    return scores


def best_of(table: xr.Dataset, criterion: str) -> tuple[int, int]:
    """Indices of the best K and L_w; of equals, those of the smaller K, then the smaller L_w."""
    scores = scores_of(table, criterion)
    costs = np.where(np.isfinite(scores), -scores if criterion == "held_out" else scores, np.inf)
    row, column = np.unravel_index(int(costs.argmin()), costs.shape)
    return int(row), int(column)


def edges_of(table: xr.Dataset, best: tuple[int, int], n_bands: int) -> list[str]:
    """In words, each edge of the grid that the best lies at, beyond which other values could be tried.

    An axis of one value has no edge; neither K = 1, L_w = 0 nor L_w = D - 1 is one.
    """
    edges = []
    for name, index, least, most in zip(AXES, best, (1, 0), (np.inf, n_bands - 1), strict=True):
        values = table[name].values
        value = int(values[index])
        if len(values) > 1 and value == values[-1] and value < most:
            edges.append(f"{name}={value} is the largest tried: try larger ones")
        elif len(values) > 1 and value == values[0] and value > least:
            edges.append(f"{name}={value} is the smallest tried: try smaller ones")
    return edges


def format_selection(table: xr.Dataset, criterion: str) -> str:
    """Lay out the table as aligned plain text, a heading and one line a fit, the best marked with a star."""
    best = best_of(table, criterion)
    rows = [["", *AXES, *_SHOWN]]
    for place in np.ndindex(*(table.sizes[name] for name in AXES)):
        cell = table.isel(dict(zip(AXES, place, strict=True)))
        values = [_cell(cell[name].item()) for name in (*AXES, *_SHOWN)]
        rows.append(["*" if place == best else "", *values])
    return aligned(rows, 0)


def _cell(value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if np.isnan(value):
        return "-"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 1e4 else format_number(value)
