"""What a trained model does with labelled data: maps, posteriors, scores and simulations."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import xarray as xr

from .._version import __version__
from ..cubes import (
    COMMITTEE,
    RESERVED,
    BlockInverter,
    Conditions,
    Domain,
    MapVariable,
    Predictor,
    Request,
    apply_blocks,
    check_outputs,
    check_request,
    declare_outputs,
    declare_scores,
    describe_conditions,
    earlier_history,
    expected_spectra,
    inversion_attrs,
    label_maps,
    label_posterior,
    large_graphs,
    listed,
    meant,
    pixel_coordinates,
    read_conditions,
    read_request,
    record_conditions,
    require_flags,
    require_free_names,
    with_history,
    without_training,
)
from ..model import Model
from ..scores import (
    MEASURED,
    broadcast_truth,
    calibration_table,
    evaluation,
    grouped_errors,
    in_decades,
    of_samples,
    read_truth,
    weighted_calibration,
)
from .predictive import ExpectedSpectrum, checked, expected

CHECKED = 1000
"""Spectra that a check is of."""

OWN_WIDTH = (
    "Draws, modes, entropy and information have the width of the model's posterior, others that of field values."
)
"""What maps of a model tell that is calibrated by field values."""


@dataclass(frozen=True)
class Inversion:
    """How a model inverts spectra; the options are those of :meth:`specinvert.GLLiMInverter.invert`.

    ``by_evidence`` weighs the members of a committee by the density that each gives to the spectrum.
    """

    model: Model
    by_evidence: bool
    noise: Any = None
    known: Any = None
    band_dim: str | None = None
    tolerance: float = 1.0
    rechunk: str | None = None
    min_valid_bands: int | None = None
    noise_includes_training: bool = False

    @classmethod
    def of(cls, model: Model, by_evidence: bool, options: Mapping[str, Any]) -> Inversion:
        """With options by name; TypeError where one is none of them."""
        accepted = [field.name for field in fields(cls)][2:]
        strange = [name for name in options if name not in accepted]
        if strange:
            raise TypeError(f"{listed(strange)} are no options of an inversion: use {listed(accepted)}")
        return cls(model, by_evidence, **options)

    def __post_init__(self) -> None:
        require_flags(noise_includes_training=self.noise_includes_training)

    def maps(self, cube: xr.DataArray | xr.Dataset, outputs: Sequence[str]) -> xr.Dataset:
        """Labelled maps of the outputs, lazy if the cube is."""
        model = self.model
        declared = declare_outputs(outputs, model.names, model.theta.n_latent)
        if len(model.members) > 1:
            check_outputs(declared, COMMITTEE)
        request = self.request(cube)
        taken = {v.name for v in declared} | {dim for v in declared for dim in v.output.dims}
        require_free_names(request.cube, request.band_dim, sorted(taken))
        kernel = self.kernel(request, declared)
        return label_maps(
            apply_blocks(request.cube, request.band_dim, kernel),
            request.cube,
            declared,
            model.labels,
            self._provenance(request, kernel, earlier_history(cube.attrs, request.cube.attrs)),
            self.model.transforms.estimates,
        )

    def posterior(self, spectra: xr.DataArray | xr.Dataset, n_components: int | None = None) -> xr.Dataset:
        """The mixture of each spectrum, of ``n_components`` at most where that is given, in memory."""
        least = n_components is None or (isinstance(n_components, numbers.Integral) and n_components >= 1)
        if not least or isinstance(n_components, bool):
            raise ValueError(f"n_components={n_components!r} must be an integer, 1 or more, or None")
        request = self.request(spectra)
        require_free_names(request.cube, request.band_dim, (*RESERVED, "weight", "mean", "covariance", "log_evidence"))
        kernel = self.kernel(request, [])
        if kernel.conditions.has_interval:
            raise ValueError(
                "a posterior with a parameter known by an interval is no mixture of Gaussians: ask invert for the "
                "outputs that you want"
            )
        return label_posterior(kernel, request, n_components)

    def evaluate(
        self,
        test: xr.Dataset,
        measured: bool = False,
        weights: str | xr.DataArray | None = None,
        groups: str | xr.DataArray | None = None,
    ) -> xr.Dataset:
        """Errors, scores and calibration over ``parameter`` on spectra of known parameters."""
        require_flags(measured=measured)
        maps, truth, (weight, group) = self._compare(test, ("estimate", "pit", "crps"), weights=weights, groups=groups)
        names = list(truth)
        scores = evaluation(maps[names], truth, names, weight)
        if not any(entry.kind == "ilr" for entry in self.model.transforms.entries):
            scored = [maps[f"{name}_crps"] for name in names]
            crps = [float((one if weight is None else one.weighted(weight.fillna(0.0))).mean()) for one in scored]
            attrs = {"long_name": "mean continuous ranked probability score"}
            if "units" in scores["rmse"].attrs:
                attrs["units"] = scores["rmse"].attrs["units"]
            scores["crps"] = ("parameter", crps, attrs)
        logs = [n for n in names if self.model.transforms.entry(self.model.names.index(n)).kind == "log"]
        if logs:
            scores = scores.merge(in_decades(maps, truth, logs, weight), join="left")
        pit = _named(maps, "pit", names)
        scores = scores.merge(calibration_table(pit) if weight is None else weighted_calibration(pit, weight))
        if group is not None:
            share = (xr.ones_like(pit[names[0]]) if weight is None else weight).values.ravel()
            rows = [
                grouped_errors((maps[n] - truth[n]).values.ravel(), pit[n].values.ravel(), share, group.values.ravel())
                for n in names
            ]
            scores = scores.assign({column: ("parameter", [row[column] for row in rows]) for column in rows[0]})
        absent = [name for name in self.model.names if name not in names]
        told = {"absent": ", ".join(absent)} if absent else {}
        check = self.check_of(test, by_band=False)
        of_spectra: dict[str, Any] = {}
        if check is not None:
            named = {"check_bands": check["window_bands"].values.tolist(), "check_q": check["q"].values}
            of_spectra = {"check": check.attrs["verdict"], **named}
        return scores.assign_attrs(truth=MEASURED if measured else "simulated", **told, **of_spectra)

    def check_of(self, test: xr.Dataset, by_band: bool = True) -> xr.Dataset | None:
        """:meth:`check` of the spectra of a test set; None where a parameter is known by an interval."""
        spectra = read_truth(test, self.model.names, self.model.attrs, partial=True)[1]
        request = replace(self, rechunk="auto").request(spectra)
        if self.conditions(request).has_interval:
            return None
        return checked(self.model, self._reconstructing(request), request, CHECKED, by_band)

    def check(self, cube: xr.DataArray | xr.Dataset, n_spectra: int = CHECKED) -> xr.Dataset:
        """The posterior predictive check of spectra: see :meth:`specinvert.GLLiMInverter.check`."""
        whole = isinstance(n_spectra, numbers.Integral) and not isinstance(n_spectra, bool)
        if not whole or n_spectra < 1:
            raise ValueError(f"n_spectra={n_spectra!r} must be an integer, 1 or more")
        request = replace(self, rechunk="auto").request(cube)
        if self.conditions(request).has_interval:
            raise ValueError("a check needs known parameters by value: leave the interval out of known")
        return checked(self.model, self._reconstructing(request), request, int(n_spectra), by_band=True)

    def expected(self, request: Request) -> ExpectedSpectrum:
        """What the model expects of each band of the only spectrum of a request from bands of other windows."""
        return expected(self.model, self._reconstructing(request), request)

    def _reconstructing(self, request: Request) -> BlockInverter:
        return self.kernel(request, declare_outputs(["residual"], self.model.names, self.model.theta.n_latent))

    def pit(self, test: xr.Dataset) -> xr.Dataset:
        """The posterior's distribution function at the truth, by parameter."""
        maps, truth, _ = self._compare(test, ("pit",))
        return _named(maps, "pit", list(truth))

    def scores(self, test: xr.Dataset) -> xr.Dataset:
        """Standard normal scores of :meth:`pit`, by parameter: Phi^-1 of it, but of any size, where it is 0 or 1."""
        maps, truth, _ = self._compare(test, ("score",))
        return _named(maps, "score", list(truth))

    def pairs(
        self, field: xr.Dataset, groups: xr.DataArray, most: int
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray, Any]:
        """Posteriors and true parameters of spectra, row by row, their groups, and the record of the noise.

        Posteriors are ``weight`` (n, A), ``mean`` and ``variance`` (n, A, L_z); truths (n,) are NaN where unknown.
        ValueError for more than ``most`` spectra.
        """
        _, spectra = read_truth(field, self.model.names, self.model.attrs, partial=True)
        request = self.request(spectra)
        count = request.cube.size // request.cube.sizes[request.band_dim]
        if count > most:
            raise ValueError(
                f"{count} spectra are more than the {most} of a calibration by field values: select those with values, "
                "or use recalibrate, which is for many"
            )
        maps, truth, (group,) = self._compare(field, ("estimate",), groups=groups)
        posterior = self.posterior(spectra)
        assert group is not None
        dims = next(iter(maps.data_vars.values())).dims
        posterior = posterior.transpose(*dims, "component", "parameter", "parameter_2")
        rows = {
            "weight": posterior["weight"].values.reshape(count, -1),
            "mean": posterior["mean"].values.reshape(count, *posterior["mean"].shape[-2:]),
            "variance": np.diagonal(posterior["covariance"].values, axis1=-2, axis2=-1).reshape(
                count, *posterior["mean"].shape[-2:]
            ),
        }
        values = {
            name: np.asarray(array.transpose(*dims).values, dtype=np.float64).ravel() for name, array in truth.items()
        }
        noise = record_conditions(self.conditions(request), self.model.names).get("noise")
        return rows, values, group.values.ravel(), noise

    def _compare(
        self, test: xr.Dataset, kinds: Sequence[str], **of_rows: str | xr.DataArray | None
    ) -> tuple[xr.Dataset, dict[str, xr.DataArray], list[xr.DataArray | None]]:
        """Outputs for spectra of known parameters, computed together, and these on the grid of the outputs.

        So are ``of_rows``, what else is given of each spectrum. Parameters that the test set lacks are left out.
        """
        names = self.model.names
        truth, spectra = read_truth(test, names, self.model.attrs, partial=True)
        own = [name for name in names if name in truth]
        truth = truth.assign({name: meant(truth[name], f"true {name!r}").variable for name in own})
        unknown = {name: xr.full_like(truth[own[0]], np.nan, np.float64) for name in names if name not in own}
        request = self.request(spectra)
        kernel = self.kernel(request, declare_scores(kinds, names), truth.assign(unknown))
        given = {what: of_samples(spectra, value, what) for what, value in of_rows.items()}
        with large_graphs():
            maps = apply_blocks(request.cube, request.band_dim, kernel).compute()
        first = maps[next(iter(maps.data_vars))]
        on_grid = {what: value if value is None else _on_grid(value, first, what) for what, value in given.items()}
        return maps, {name: broadcast_truth(truth[name], first) for name in own}, list(on_grid.values())

    def request(self, data: xr.DataArray | xr.Dataset) -> Request:
        """The spectra in ``data`` and where their bands are; raises as :func:`specinvert.cubes.read_request`."""
        return read_request(data, self.model.labels, self.band_dim, self.tolerance, self.rechunk)

    def conditions(self, request: Request, truth: xr.Dataset | None = None) -> Conditions:
        """Noise beyond that of training and known parameters, and a truth to compare with, checked.

        Raises
        ------
        TypeError, ValueError : as :func:`specinvert.cubes.read_conditions`, and noise below that of training.
        """
        model = self.model
        found = self.noise.attrs.get("model") if isinstance(self.noise, xr.Dataset) else None
        if found not in (None, model.identity, model.scene_prior and model.scene_prior.of):
            raise ValueError(f"noise was found for model {found}, this is {model.identity}: call adapt with this one")
        conditions = read_conditions(request, model.labels, self.noise, self.known, self.tolerance, truth)
        return without_training(conditions, model.training_noise) if self.noise_includes_training else conditions

    def kernel(
        self, request: Request, declared: Sequence[MapVariable], truth: xr.Dataset | None = None
    ) -> BlockInverter:
        """What fills the declared variables of one request, block by block.

        Raises
        ------
        ValueError : noise, known parameters or outputs that do not go with the model, the request or each other.
        """
        model, conditions = self.model, self.conditions(request, truth)
        check_request(conditions, declared, model.transforms)
        calibration = model.calibration
        if calibration is not None:
            self._tell_noise(record_conditions(conditions, model.names).get("noise"))
        predictor = Predictor(
            model.members if calibration is None else calibration.members(model.members, model.transforms),
            model.transforms,
            Domain(model.low, model.high, model.log_tail),
            self.by_evidence,
            self._least_bands(),
            model.recalibration,
            model.held_out,
            None if self.by_evidence else model.member_weights,
            model.spectra_transform,
            calibration,
        )
        return BlockInverter(predictor, request.bands, tuple(declared), request.dtype, request.fill, conditions)

    def _tell_noise(self, given: Any) -> None:
        """Warn where a model was calibrated by field values under other noise than is ``given``."""
        known = None if self.model.calibration is None else self.model.calibration.noise
        alike = np.isclose(given, known) if isinstance(given, float) and isinstance(known, float) else given == known
        if not alike:
            said = ["without noise" if noise is None else f"with noise {noise}" for noise in (known, given)]
            warnings.warn(
                f"the model was calibrated by field values {said[0]}, and inverts {said[1]}: its intervals hold what "
                "they say under the former",
                UserWarning,
                stacklevel=5,
            )

    def _provenance(self, request: Request, kernel: BlockInverter, earlier: str) -> dict[str, str]:
        """Attributes of maps: version and model, conditions, ranges of training, and the history with one line more."""
        model, identity = self.model, self.model.identity
        said = describe_conditions(kernel.conditions, model.names)
        if model.spectra_transform.kind is not None:
            said = [f"{model.spectra_transform.kind} of the spectra", *said]
        told = {}
        if model.scene_prior is not None:
            said.append(f"prior of a scene: {model.scene_prior.verdict}")
        if model.calibration is not None:
            said.append(f"calibrated: {model.calibration.described}")
            told["calibration"] = f"{model.calibration.described}. {OWN_WIDTH}"
        ranges = zip(model.names, model.low, model.high, strict=True)
        return {
            "source": f"specinvert {__version__}, GLLiM model {identity}",
            **inversion_attrs(identity, kernel),
            **with_history({"history": earlier}, "; ".join(["invert", *request.remarks, *said])),
            **told,
            "training_ranges": "; ".join(f"{name}: {low:g} to {high:g}" for name, low, high in ranges),
        }

    def _least_bands(self) -> int:
        """Valid bands that a spectrum needs: those asked for, else L_t + 1 or a tenth of the bands, the larger."""
        theta, least = self.model.theta, self.min_valid_bands
        if least is None:
            return min(theta.n_bands, max(theta.n_parameters + 1, -(-theta.n_bands // 10)))
        if not isinstance(least, numbers.Integral) or isinstance(least, bool) or not 1 <= least <= theta.n_bands:
            raise ValueError(f"min_valid_bands={least!r} must be an integer from 1 to the {theta.n_bands} bands")
        return int(least)


def simulate(model: Model, parameters: xr.Dataset, latent: xr.DataArray | None = None) -> xr.DataArray:
    """Labelled spectra expected for parameters: see :meth:`specinvert.GLLiMInverter.simulate`.

    A coordinate that has the name of the spectra or of their bands gives way.
    """
    spectra, like = expected_spectra(
        model.members, model.transforms, parameters, latent, model.member_weights, model.spectra_transform
    )
    dim, coords = model.band_coordinates()
    own = [dim, *coords, model.spectra_name]
    require_free_names(like, "", own)
    return xr.DataArray(
        spectra,
        dims=(*like.dims, dim),
        coords=pixel_coordinates(like, dim, own) | coords,
        name=model.spectra_name,
        attrs={} if model.spectra_units is None else {"units": model.spectra_units},
    )


def _on_grid(values: xr.DataArray, like: xr.DataArray, what: str) -> xr.DataArray:
    """What is given of each sample, on the grid of the estimates; ValueError where it has another."""
    strange = {dim: size for dim, size in values.sizes.items() if like.sizes.get(dim) != size}
    if strange:
        raise ValueError(f"{what} have dimensions {strange} that the spectra {dict(like.sizes)} do not have")
    return broadcast_truth(values.reset_coords(drop=True), like).transpose(*like.dims).compute()


def _named(maps: xr.Dataset, kind: str, names: Sequence[str]) -> xr.Dataset:
    """Those of the maps that are of a kind, such as "pit", named after their parameters."""
    return maps[[f"{name}_{kind}" for name in names]].rename({f"{name}_{kind}": name for name in names})
