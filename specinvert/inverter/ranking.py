"""Several models on spectra without labels: what each says of bands that it is not shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from ..cubes import BlockInverter, Request, declare_outputs
from ..flags import PRIOR_ANSWERS
from ..model import Model
from ..scores import LeftOut, ranked, require_comparable, windows_of
from .inversion import Inversion
from .inverter import GLLiMInverter, inversion_of, model_of
from .predictive import sample_pixels

MOST = 1000
"""Spectra that models are compared on."""


def rank(
    inverters: Mapping[str, GLLiMInverter],
    cube: xr.DataArray | xr.Dataset,
    noise: Any = None,
    *,
    band_dim: str | None = None,
    tolerance: float = 1.0,
    noise_includes_training: bool = False,
) -> xr.Dataset:
    """Rank models by spectra whose parameters are not known, of which each is shown all but a window of bands.

    Best first: of the models that know how wrong they are the one that predicts left-out bands best. On sets with known
    parameters this order follows errors better than the evidence, which rewards inflated noise. No order sees what
    leaves no trace in the spectra.

    Parameters
    ----------
    inverters : fitted, by name, of the same bands and units. Those parameters are compared that all have.
    cube, noise, band_dim, tolerance, noise_includes_training : as :meth:`GLLiMInverter.invert` takes them. Of a larger
        cube a random choice of 1000 spectra, always the same, is read.

    Returns
    -------
    Dataset over `model`, in memory: `calibrated`, whether `disagreement` and `window_q` are below 2; `first_share`, of
    resamples of the spectra in which the model comes first; `window_error`, the root mean squared error of bands
    predicted from those of other windows, in their standard deviations; `window_q`, its square over the predictive
    variance, and `window_inside`, the share of bands in 90 % intervals; `disagreement`, the squared moves of estimates
    when a window is left out over what they should be, 1 where the model is right, more where intervals are too narrow;
    `expected_error` of the estimates, the root of their variance and squared moves, geometric mean over parameters,
    relative to the least; `prior_share`, of spectra whose prior answers; `predictive`, mean log density of a band given
    other windows, and `mean_log_evidence` of a spectrum, nats; `n` and `n_usable` spectra, compared and usable by the
    model alone. The attribute `verdict` says what follows.

    Raises
    ------
    ValueError : no model, models of other bands or units, no spectrum that all can use, or as
        :meth:`GLLiMInverter.invert`.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> scene, made = simulate_mixtures(60, noise=0.01, seed=2), {}
    >>> for noise in (0.001, 0.01):
    ...     training = simulate_mixtures(300, noise=noise, seed=1)
    ...     inverter = GLLiMInverter(3, n_latent=0, tol=0.1, random_state=0)
    ...     made[f"noise {noise}"] = inverter.fit(training, parameters=["ice_fraction"])
    >>> rank(made, scene["reflectance"])["model"].values.tolist()
    ['noise 0.01', 'noise 0.001']
    """
    if not inverters:
        raise ValueError("there is no model to rank; give at least one")
    require_comparable({name: model_of(inverter) for name, inverter in inverters.items()})
    options = {
        "noise": noise,
        "band_dim": band_dim,
        "tolerance": tolerance,
        "noise_includes_training": noise_includes_training,
        "rechunk": "auto",
    }
    inversions = {name: inversion_of(inverter, **options) for name, inverter in inverters.items()}
    requests = {name: inversion.request(cube) for name, inversion in inversions.items()}
    first, request = next(iter(inversions.values())), next(iter(requests.values()))
    kernel = first.kernel(request, [])
    block, extras = sample_pixels(request, kernel, MOST)
    banded = [extra.banded for extra in kernel.conditions.extras]
    left, spectra = {}, np.empty(0)
    for name, inversion in inversions.items():
        own = requests[name]
        order = np.argsort(request.bands)[np.searchsorted(np.sort(request.bands), own.bands)]
        given = [extra[:, order] if by_band else extra for extra, by_band in zip(extras, banded, strict=True)]
        left[name], spectra = leave_windows_out(inversion, own, block, given)
    return ranked(left, spectra, request.cube.size // request.cube.sizes[request.band_dim])


def leave_windows_out(
    inversion: Inversion, request: Request, block: np.ndarray, extras: Sequence[np.ndarray]
) -> tuple[LeftOut, np.ndarray]:
    """What a model says of spectra (n, D_cube) of a request with each window left out, and these spectra (n, D).

    ``extras`` are what the conditions give of each. Bands are in the order of the windows.
    """
    model = inversion.model
    moments = declare_outputs(["mean", "std"] if model.names else [], model.names, model.theta.n_latent)
    asked = ["log_evidence", *(["flag"] if model.names else [])]
    kernel = inversion.kernel(request, [*moments, *declare_outputs(asked, model.names, model.theta.n_latent)])
    parts = windows_of(model.bands)
    rows, _, given = kernel.read_block(block, extras)
    whole = _by_name(kernel, block, extras)
    estimate, variance = _moments(whole, model)
    fewer = replace(inversion, min_valid_bands=1).kernel(request, moments)
    moved, expected = np.zeros((2, *estimate.shape))
    for part in parts if model.names else ():
        holed = block.astype(np.result_type(block, np.float32))
        holed[:, request.bands[part]] = np.nan
        without, wider = _moments(_by_name(fewer, holed, extras), model)
        moved += (without - estimate) ** 2
        expected += wider - variance

    mean, ratio, inside = np.full((3, *rows.shape), np.nan)
    density = model.spectra_transform.log_volume(rows)
    made = model.spectra_transform.forward(rows)
    for part, one in zip(parts, kernel.windows(rows, given, parts), strict=True):
        mean[:, part] = one.mean
        ratio[:, part] = (made[:, part] - one.mean) ** 2 / one.variance
        inside[:, part] = np.abs(one.below - 0.5) <= 0.45
        density = density + np.nan_to_num(one.log_density)
    error = rows - model.spectra_transform.inverse(mean)
    order = np.concatenate(parts)
    left = LeftOut(
        names=tuple(model.names),
        error=error[:, order],
        ratio=ratio[:, order],
        inside=inside[:, order],
        predictive=density,
        evidence=whole["log_evidence"],
        variance=variance,
        moved=moved,
        expected=expected,
        prior_answers=(whole.get("quality_flag", np.zeros(len(rows), np.uint8)) & PRIOR_ANSWERS) > 0,
    )
    return left, rows[:, order].astype(np.float64)


def _by_name(kernel: BlockInverter, block: np.ndarray, extras: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The variables of spectra (n, D)."""
    return {variable.name: values for variable, values in zip(kernel.outputs, kernel(block, *extras), strict=True)}


def _moments(found: Mapping[str, np.ndarray], model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances (n, L_t) of the parameters, in float64."""
    n = len(next(iter(found.values()))) if found else 0
    made = np.empty((2, n, len(model.names)))
    for i, name in enumerate(model.names):
        made[0, :, i], made[1, :, i] = found[name], np.square(found[f"{name}_std"], dtype=np.float64)
    return made[0], made[1]
