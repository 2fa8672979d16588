"""Which model suits spectra without labels best: what it says of bands that it was not shown, and of parameters then.

Evidence, the mean log density of the spectra, rewards inflated noise and says nothing of parameters that spectra do not
see. A ranking is by what follows errors better. First come the models that know how wrong they are, where two figures,
both 1 where the model is right, are below ``CALIBRATED``:

- ``disagreement``, the squared moves of estimates when a window of bands is left out, over their expectation, which by
  the law of total variance is the variance without the window less that with it;
- ``window_q``, squared errors of bands predicted from other windows over their predictive variance.

Among them the least ``window_error`` is the best: the error of these predictions, in the units of the spectra's spread.
The others follow by the greater of the two figures. Only models of the same bands and units are comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..cubes import check_units, percent
from .metrics import aligned

if TYPE_CHECKING:
    from ..cubes import Bands
    from ..model import Model


CAVEAT = (
    "Only models of the same bands and units are comparable. No such order sees an error that leaves no trace in the "
    "spectra, as of a wrong prior: field values do."
)
"""What to keep in mind when reading a ranking."""

SAME_BAND_NM = 0.01
"""Wavelengths that differ by less are those of one band, rounded."""

RESAMPLES = 200
"""Resamples of the spectra that tell how sure the first place is."""
CALIBRATED = 2.0
"""Disagreement and squared errors over their variance below which a model counts as calibrated."""
MOSTLY_PRIOR = 0.2
"""Share of spectra whose prior answers above which it is told."""

_COLUMNS = {
    "calibrated": f"whether disagreement and window_q are below {CALIBRATED:g}: such models come before others",
    "first_share": "share of resamples of the spectra, taken as independent, in which the model comes first",
    "window_error": "root mean squared error of bands predicted from other windows, in their standard deviations",
    "expected_error": "root of variance and squared moves of estimates, geometric mean over parameters, least: 1",
    "disagreement": "squared moves of estimates without a window over their expectation, 1 where the model is right",
    "window_q": "squared error of predicted bands over their predictive variance, 1 where the model is right",
    "window_inside": "share of bands in their 90 % predictive intervals",
    "prior_share": "share of spectra that tell so little of a parameter that its prior answers",
    "predictive": "mean log density of a band given the bands of other windows, nats",
    "mean_log_evidence": "mean log density of a spectrum under the model, nats: rewards inflated noise",
    "n": "number of spectra compared, those that every model can use",
    "n_usable": "number of spectra that the model can use",
}


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What a model says of n spectra whose bands are left out window by window.

    Attributes
    ----------
    names : parameters (L_t,).
    error : (n, D) observed less predicted from the other windows, NaN of missing bands.
    ratio, inside : (n, D) squared error over predictive variance; whether in the 90 % predictive interval.
    predictive : (n,) sum over windows of log p(y_w | y_-w). evidence : (n,) log p(y), NaN where there is no data.
    variance : (n, L_t) of the posterior. moved : (n, L_t) squared moves of the estimates, and expected : (n, L_t) their
        expectation, summed over windows.
    prior_answers : (n,).
    """

    names: tuple[str, ...]
    error: np.ndarray
    ratio: np.ndarray
    inside: np.ndarray
    predictive: np.ndarray
    evidence: np.ndarray
    variance: np.ndarray
    moved: np.ndarray
    expected: np.ndarray
    prior_answers: NDArray[np.bool_]

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Spectra (n,) with data."""
        there = np.isfinite(self.evidence) & np.isfinite(self.predictive)
        return np.asarray(there & np.isfinite(self.moved).all(axis=1) & np.isfinite(self.variance).all(axis=1))

    def of(self, rows: NDArray[np.bool_], names: Sequence[str]) -> LeftOut:
        """Of some spectra and parameters."""
        columns = [self.names.index(name) for name in names]
        cut = {name: getattr(self, name)[rows] for name in ("error", "ratio", "inside", "predictive", "evidence")}
        cut |= {name: getattr(self, name)[rows][:, columns] for name in ("variance", "moved", "expected")}
        return replace(self, names=tuple(names), prior_answers=self.prior_answers[rows], **cut)


def ranked(models: Mapping[str, LeftOut], spectra: np.ndarray, total: int) -> xr.Dataset:
    """Rank models by what they say of the same spectra (n, D), of ``total``, with windows of bands left out.

    Returns
    -------
    Dataset over `model`, best first, of the columns that :func:`specinvert.rank` describes.

    Raises
    ------
    ValueError : no spectrum can be used by all models.
    """
    names = list(models)
    usable = {name: one.usable for name, one in models.items()}
    common = np.logical_and.reduce(list(usable.values()))
    if not common.any():
        counts = ", ".join(f"{name} {int(rows.sum())}" for name, rows in usable.items())
        raise ValueError(f"no spectrum of {total} can be used by every model (usable: {counts}); leave a model out")
    shared = [name for name in models[names[0]].names if all(name in one.names for one in models.values())]
    some = [one.of(common, shared) for one in models.values()]
    spread = np.nanstd(spectra[common], axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    n = int(common.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [_Terms.of(one, spread) for one in some]
        figures = _figures(terms, np.ones((1, n)))
        draws = np.random.default_rng(0).multinomial(n, np.full(n, 1.0 / n), RESAMPLES).astype(np.float64)
        winners = _order(_figures(terms, draws))[0]
    order = _order(figures)[:, 0]
    columns: dict[str, np.ndarray] = {"calibrated": _excess(figures)[:, 0] == 0.0}
    columns["first_share"] = np.bincount(winners, minlength=len(names)) / RESAMPLES
    columns |= {name: values[:, 0] for name, values in figures.items()}
    if shared:
        columns["expected_error"] = columns["expected_error"] / columns["expected_error"].min()
    columns["window_inside"] = np.array([np.nanmean(np.where(np.isnan(one.error), np.nan, one.inside)) for one in some])
    if shared:
        columns["prior_share"] = np.array([one.prior_answers.mean() for one in some])
    n_bands = np.isfinite(some[0].error).sum(axis=1)
    columns["predictive"] = np.array([(one.predictive / n_bands).mean() for one in some])
    columns["mean_log_evidence"] = np.array([one.evidence.mean() for one in some])
    columns["n"] = np.full(len(names), n)
    columns["n_usable"] = np.array([int(rows.sum()) for rows in usable.values()])
    table = xr.Dataset(
        {
            k: ("model", v[order], {"long_name": _COLUMNS[k]} | ({} if v.dtype == bool else {"units": "1"}))
            for k, v in columns.items()
        },
        coords={"model": ("model", [names[i] for i in order], {"long_name": "model, best first"})},
        attrs={"n_spectra": total, "comment": CAVEAT},
    )
    return table.assign_attrs(verdict=verdict(table))


@dataclass(frozen=True, eq=False)
class _Terms:
    """What the figures average: of each spectrum the figures of its bands (n,), and of its parameters (n, L)."""

    squared: np.ndarray
    ratio: np.ndarray
    spread: np.ndarray
    moved: np.ndarray
    expected: np.ndarray

    @classmethod
    def of(cls, left: LeftOut, spread: np.ndarray) -> _Terms:
        squared, ratio = np.nanmean((left.error / spread) ** 2, axis=1), np.nanmean(left.ratio, axis=1)
        return cls(squared, ratio, left.variance + left.moved, left.moved, left.expected)


def _figures(models: Sequence[_Terms], draws: np.ndarray) -> dict[str, np.ndarray]:
    """Figures (models, B) of B weightings of the spectra (B, n): the less the better."""
    share = draws / draws.sum(axis=1, keepdims=True)
    made = {"window_error": np.stack([np.sqrt(share @ one.squared) for one in models])}
    made["window_q"] = np.stack([share @ one.ratio for one in models])
    if models[0].moved.shape[1]:
        allowed = [np.maximum(share @ one.expected, 0.0) for one in models]
        ratios = [(share @ one.moved) / least for one, least in zip(models, allowed, strict=True)]
        made["disagreement"] = np.stack([_geometric(ratio) for ratio in ratios])
        made["expected_error"] = np.stack([_geometric(np.sqrt(share @ one.spread)) for one in models])
    return made


def _geometric(values: np.ndarray) -> np.ndarray:
    """Geometric mean over the parameters (B,) of (B, L)."""
    return np.asarray(np.exp(np.log(values).mean(axis=1)))


def _excess(figures: Mapping[str, np.ndarray]) -> np.ndarray:
    """How far from calibrated (models, B): zero for those that are."""
    both = np.stack(
        [np.nan_to_num(figures[name], nan=np.inf) for name in ("window_q", "disagreement") if name in figures]
    )
    worst = both.max(axis=0)
    return np.where(worst < CALIBRATED, 0.0, worst)


def _order(figures: Mapping[str, np.ndarray]) -> np.ndarray:
    """Models (models, B), best first."""
    return np.lexsort((figures["window_error"], _excess(figures)), axis=0)


def verdict(table: xr.Dataset) -> str:
    """What a ranking says, in sentences."""
    names = [str(name) for name in table["model"].values]
    best = table.isel(model=0)
    said = []
    if len(names) > 1:
        said.append(f"{names[0]} comes first, in {percent(float(best['first_share']))} of resamples of the spectra.")
        of_evidence = int(np.argmax(table["mean_log_evidence"].values))
        if of_evidence:
            said.append(
                f"Evidence alone would have chosen {names[of_evidence]}: it prefers inflated noise and narrow priors."
            )
    if not best["calibrated"]:
        who = "No model is calibrated" if len(names) > 1 else "The model is not calibrated"
        said.append(
            f"{who} for these spectra: {' and '.join(_excesses(best))}. Train with what simulations lack "
            "(nuisance models, noise), or adapt the model to the spectra."
        )
    if "prior_share" in table and float(best["prior_share"]) > MOSTLY_PRIOR:
        said.append(f"Of {percent(float(best['prior_share']))} of the spectra the prior answers for a parameter.")
    return " ".join(said)


def _excesses(row: xr.Dataset) -> Iterator[str]:
    """What of a model is not calibrated, in words."""
    disagreement, q = (float(row[name]) if name in row else 0.0 for name in ("disagreement", "window_q"))
    if not disagreement < CALIBRATED:
        far = f"{disagreement:.2g} times as far, squared, as they should" if np.isfinite(disagreement) else "too far"
        yield f"estimates move {far} when bands are left out"
    if not q < CALIBRATED:
        yield f"squared errors of left-out bands are {q:.2g} times their predictive variance"


def format_ranking(table: xr.Dataset) -> str:
    """Lay out the figures of a ranking that matter most as aligned plain text, a heading and one line a model."""
    shown = [name for name in table.data_vars if name not in ("predictive", "n", "n_usable")]
    columns = [["model", *map(str, table["model"].values)]]
    for name in shown:
        values = table[name].values
        columns.append([str(name), *((("yes" if v else "no") if values.dtype == bool else f"{v:.3g}") for v in values)])
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
