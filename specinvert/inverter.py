"""GLLiMInverter: labelled simulations in, a trained model; labelled spectra in, labelled parameter maps out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from .cubes.engine import BlockInverter, apply_blocks
from .cubes.labels import listed, require_free_names, require_numbers
from .cubes.maps import label_maps
from .cubes.mixture import expected_spectra, label_posterior
from .cubes.outputs import DEFAULT_OUTPUTS, OUTPUTS, RESERVED, declare_outputs
from .cubes.request import Request, read_request
from .cubes.training import read_training
from .cubes.units import check_units
from .diagnostics.metrics import evaluation
from .gllim.parameters import Constraints, GLLiMParameters
from .gllim.training import FitProgress, Settings, train
from .io.checkpoint import CheckpointFile
from .io.model import Model, load_model, save_model

_SETTINGS = (
    *("n_components", "n_latent", "max_latent", "sigma", "tied_sigma", "gamma", "tied_gamma", "tied_pi"),
    *("standardize", "init", "n_init", "max_iter", "tol", "reg_covar", "random_state"),
)
_CONSTRAINTS = ("sigma", "tied_sigma", "gamma", "tied_gamma", "tied_pi")


class GLLiMInverter:
    """Trains on labelled simulated spectra, then turns spectra of any shape into parameters with uncertainties.

    Parameters
    ----------
    n_components : K, the number of local affine maps.
    n_latent : L_w, latent dimensions for what varies in the spectra beside the parameters; ``"bic"`` tries 0 to
        ``max_latent`` and keeps the least BIC.
    max_latent : largest L_w to try, or a sequence of them.
    sigma, tied_sigma : structure of the noise, ``"iso"``, ``"diag"`` or ``"full"``, and whether components share it.
    gamma, tied_gamma : structure of the parameters' covariance in each component, and whether all share it.
    tied_pi : all component weights 1/K.
    standardize : centre and scale the data for the fit; results are in the user's units either way.
    init : start of EM: ``"kmeans"`` on the parameters, ``"kmeans-joint"``, ``"kmeans-spectra"``, ``"gmm"``, or a
        GLLiMParameters to go on from.
    n_init : starts to try, the greatest likelihood is kept.
    max_iter, tol : stop after max_iter iterations, or when one gains less than tol nats a sample (0: never).
    reg_covar : no variance falls below this share of the band's or parameter's own variance.
    random_state : seed of the starts.

    Attributes
    ----------
    parameters_ : GLLiMParameters in the user's units.
    log_likelihoods_, n_iter_, converged_ : observed log-likelihood after each iteration, their number, and whether
        ``tol`` stopped them.
    n_components_, n_latent_, n_removed_ : what was kept, chosen, and removed as degenerate.
    bic_, bics_ : BIC of the fit, and of each L_w tried.
    """

    def __init__(
        self,
        n_components: int = 50,
        n_latent: int | str = 0,
        *,
        max_latent: int | Sequence[int] = 10,
        sigma: str = "iso",
        tied_sigma: bool = False,
        gamma: str = "full",
        tied_gamma: bool = False,
        tied_pi: bool = False,
        standardize: bool = True,
        init: str | GLLiMParameters = "kmeans",
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-4,
        reg_covar: float = 1e-10,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_latent = n_latent
        self.max_latent = max_latent
        self.sigma = sigma
        self.tied_sigma = tied_sigma
        self.gamma = gamma
        self.tied_gamma = tied_gamma
        self.tied_pi = tied_pi
        self.standardize = standardize
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.reg_covar = reg_covar
        self.random_state = random_state
        self._settings()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={_plain(getattr(self, name))!r}" for name in _CONSTRAINTS[:2])
        state = "unfitted"
        if hasattr(self, "model_"):
            state = f"{self.model_.bands.size} bands -> {', '.join(self.model_.names) or 'latents'}"
        return f"<GLLiMInverter n_components={self.n_components}, n_latent={_plain(self.n_latent)!r}, {shown}: {state}>"

    def fit(
        self,
        training: xr.Dataset,
        spectra: str | None = None,
        parameters: Sequence[str] | None = None,
        band_dim: str | None = None,
        weights: Any = None,
        *,
        responsibilities: Any = None,
        missing: str = "raise",
        rechunk: str | None = None,
        persist: bool | str = "auto",
        checkpoint: str | Path | None = None,
        progress: FitProgress | None = None,
    ) -> GLLiMInverter:
        """Train on a Dataset of simulated spectra and the parameters they were made with.

        Parameters
        ----------
        training : every dimension of the spectra but the band's is a sample dimension; in memory or dask-backed.
        spectra : name of the spectra; by default the only variable with a band dimension.
        parameters : names of variables or coordinates, broadcast to the samples; by default every variable without the
            band dimension, else the coordinates of a gridded table. ``[]`` is unsupervised and needs ``n_latent``.
        band_dim : the band dimension, where no wavelength coordinate tells.
        weights : frequencies of the samples, a variable's name or an array; they change the prior.
        responsibilities : (n, K) array to start from instead of ``init``.
        missing : ``"raise"`` on samples with NaN, or ``"drop"`` them.
        rechunk : ``"auto"`` to merge bands that are split into several chunks.
        persist : whether dask keeps the spectra in memory between iterations, or reads them again for each;
            ``"auto"`` keeps up to 1 GB.
        checkpoint : a file in which the state of EM is kept every few iterations; where it exists, a stopped training
            goes on from it to the same result as one never stopped. Removed when training is done.
        progress : called after each EM iteration with a label, the iteration and the log-likelihood.

        Returns
        -------
        The inverter, fitted.

        Raises
        ------
        ValueError : what is wrong with the data or the settings, before any work.
        """
        settings = self._settings()
        keeper = None if checkpoint is None else CheckpointFile(checkpoint)
        data = read_training(
            training, spectra, parameters, band_dim, weights, responsibilities, missing, rechunk, persist
        )
        if not data.parameters and settings.n_latent == 0:
            raise ValueError("parameters=[] is unsupervised and needs n_latent >= 1 or 'bic'")
        declare_outputs(OUTPUTS, data.parameters, 1)  # raises where a name collides
        wavelength, labels = data.bands.wavelength, data.bands.labels

        def band_name(i: int) -> str:
            if wavelength is not None:
                return f"{wavelength[i]:g} nm"
            return f"band {labels[i] if labels is not None else i}"

        result = train(
            data.source,
            settings,
            data.n_responsibilities,
            band_name,
            lambda i: repr(data.parameters[i]),
            progress,
            keeper,
        )
        self.model_ = Model(
            theta=result.fit.parameters,
            bands=data.bands,
            spectra_name=str(data.spectra_name),
            spectra_units=data.spectra_units,
            names=data.parameters,
            attrs=data.attrs,
            low=result.moments.parameters.low,
            high=result.moments.parameters.high,
            n_samples=result.moments.spectra.n_rows,
            total_weight=result.fit.total_weight,
            log_likelihoods=np.array(result.fit.log_likelihoods),
            converged=result.fit.converged,
            n_removed=result.fit.n_removed,
            bics=result.bics,
            settings=self._stored_settings(),
        )
        if keeper is not None:
            keeper.remove()
        return self

    def invert(
        self,
        cube: xr.DataArray | xr.Dataset,
        *,
        outputs: Sequence[str] = DEFAULT_OUTPUTS,
        band_dim: str | None = None,
        tolerance: float = 1.0,
        rechunk: str | None = None,
    ) -> xr.Dataset:
        """Maps of the parameters (eq. JGMM_inverse_exp) of every spectrum, lazy if the cube is.

        Parameters
        ----------
        cube : spectra with a band dimension at any place and any other dimensions, which keep their order. NaN bands
            are marginalised exactly; a pixel without a valid band is NaN.
        outputs : ``"mean"`` -> ``p``; ``"std"`` -> ``p_std``; ``"cov"`` -> ``covariance`` (..., parameter,
            parameter_2); ``"latent"`` -> ``latent`` (..., latent); ``"log_evidence"``; ``"flag"`` -> ``quality_flag``.
        band_dim : the band dimension, where no wavelength coordinate tells.
        tolerance : largest difference in nm between a band of training and its partner in the cube.
        rechunk : ``"auto"`` to merge bands that are split into several chunks.

        Raises
        ------
        ValueError : not fitted, bands that do not match, units that contradict, unknown outputs, an empty cube.
        """
        model = self._fitted()
        declared = declare_outputs(outputs, model.names, model.theta.n_latent)
        request = self._request(cube, band_dim, tolerance, rechunk)
        taken = {output.name for output in declared} | {dim for output in declared for dim in output.core_dims}
        require_free_names(request.cube, request.band_dim, sorted(taken))
        kernel = BlockInverter(model.theta, request.bands, tuple(declared), request.dtype, request.fill)
        maps = apply_blocks(request.cube, request.band_dim, kernel)
        return label_maps(maps, request.cube, declared, model.names, model.attrs, self._provenance())

    def posterior(
        self, spectra: xr.DataArray | xr.Dataset, *, band_dim: str | None = None, tolerance: float = 1.0
    ) -> xr.Dataset:
        """The Gaussian mixture p(parameters | spectrum) (eq. JGMM_inverse_map), in memory.

        Returns
        -------
        Dataset of ``weight`` (..., component), ``mean`` (..., component, parameter), ``covariance`` (..., component,
        parameter, parameter_2) and ``log_evidence`` (...), NaN where a spectrum has no valid band.
        """
        model = self._fitted()
        request = self._request(spectra, band_dim, tolerance, "auto")
        require_free_names(request.cube, request.band_dim, (*RESERVED, "weight", "mean", "covariance", "log_evidence"))
        return label_posterior(model.theta, request, model.names)

    def simulate(self, parameters: xr.Dataset, latent: xr.DataArray | None = None) -> xr.DataArray:
        """Spectra expected for parameters: the inverse regression (eq. JGMM_forward_exp).

        Parameters
        ----------
        parameters : Dataset with every parameter of training, of any dimensions, broadcast against each other.
        latent : values of the latents along a ``latent`` dimension; None: each component's prior mean.

        Raises
        ------
        ValueError : not fitted, a parameter that is absent, NaN, or latents of the wrong size.
        """
        model = self._fitted()
        spectra, like = expected_spectra(model.theta, model.names, parameters, latent)
        dim, coords = model.band_coordinates()
        return xr.DataArray(
            spectra,
            dims=(*like.dims, dim),
            coords={**like.coords, **coords},
            name=model.spectra_name,
            attrs={} if model.spectra_units is None else {"units": model.spectra_units},
        )

    def evaluate(self, test: xr.Dataset, **options: Any) -> xr.Dataset:
        """Invert spectra whose parameters are known, and compare.

        Parameters
        ----------
        test : spectra and true parameters, variables or coordinates, of any dimensions; a cube with truth maps too.
        options : of :meth:`invert`, such as ``band_dim`` and ``tolerance``.

        Returns
        -------
        Dataset over ``parameter``: nrmse, rmse, bias, r2, correlation_squared and the number of pairs.
        """
        model = self._fitted()
        if not isinstance(test, xr.Dataset):
            raise TypeError(f"test must be an xarray Dataset of spectra and parameters, not {type(test).__name__}")
        if not model.names:
            raise ValueError("an unsupervised model has no parameters to compare with a truth")
        absent = [name for name in model.names if name not in test.variables]
        if absent:
            raise ValueError(f"true parameters {listed(absent)} not in the test set; it has {listed(test.variables)}")
        for name in model.names:
            require_numbers(test[name], f"true {name!r}")
            check_units(model.attrs[name].get("units"), test[name].attrs.get("units"), f"true {name!r}")
        truth, spectra = _set_apart(test, model.names)
        maps = self.invert(spectra, outputs=("mean",), **options)
        full = {name: _broadcast(truth[name], maps[name]) for name in model.names}
        return evaluation(maps, full, model.names)

    def to_netcdf(self, path: str | Path) -> None:
        """Write the model: arrays and attributes only, all that inversion elsewhere needs. Atomic."""
        save_model(self._fitted(), path)

    @classmethod
    def from_netcdf(cls, path: str | Path) -> GLLiMInverter:
        """Read a model written by :meth:`to_netcdf`, to the same bits."""
        model = load_model(path)
        inverter = cls(**model.settings)
        inverter.model_ = model
        return inverter

    def __getattr__(self, name: str) -> Any:
        if name in _FITTED and "model_" in self.__dict__:
            return _FITTED[name](self.model_)
        if name in _FITTED:
            raise AttributeError(f"this GLLiMInverter is not fitted, so it has no {name!r}: call fit first")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _fitted(self) -> Model:
        if "model_" not in self.__dict__:
            raise ValueError(
                "this GLLiMInverter is not fitted: call fit(training) or specinvert.load_inverter(path) first"
            )
        return self.model_

    def _settings(self) -> Settings:
        values = {name: _plain(getattr(self, name)) for name in _SETTINGS}
        constraints = Constraints(**{name: values.pop(name) for name in _CONSTRAINTS})
        return Settings(constraints=constraints, **values)

    def _stored_settings(self) -> dict[str, Any]:
        values = {name: _plain(getattr(self, name)) for name in _SETTINGS}
        if isinstance(self.init, GLLiMParameters):
            values["init"] = "kmeans"
        if not isinstance(values["random_state"], int | None):
            values["random_state"] = None
        return values

    def _request(
        self, data: xr.DataArray | xr.Dataset, band_dim: str | None, tolerance: float, rechunk: str | None
    ) -> Request:
        model = self._fitted()
        return read_request(data, model.bands, model.spectra_name, model.spectra_units, band_dim, tolerance, rechunk)

    def _provenance(self) -> dict[str, str]:
        from . import __version__

        model = self._fitted()
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ranges = "; ".join(
            f"{name}: {low:g} to {high:g}" for name, low, high in zip(model.names, model.low, model.high, strict=True)
        )
        return {
            "source": f"specinvert {__version__}, GLLiM model {self.model_id}",
            "history": f"{stamp} specinvert {__version__} invert",
            "training_ranges": ranges,
        }

    @property
    def model_id(self) -> str:
        """Short hash of the fitted parameters: the model's identity in its products."""
        digest = hashlib.sha256()
        for array in self._fitted().theta.arrays().values():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:12]


_FITTED: dict[str, Callable[[Model], Any]] = {
    "parameters_": lambda m: m.theta,
    "log_likelihoods_": lambda m: m.log_likelihoods,
    "n_iter_": lambda m: len(m.log_likelihoods),
    "converged_": lambda m: m.converged,
    "n_components_": lambda m: m.theta.n_components,
    "n_latent_": lambda m: m.theta.n_latent,
    "n_removed_": lambda m: m.n_removed,
    "bic_": lambda m: m.bics[m.theta.n_latent],
    "bics_": lambda m: m.bics,
}


def _plain(setting: Any) -> Any:
    """A setting as the Python value that JSON holds: NumPy scalars, and sequences of them, converted."""
    if isinstance(setting, np.generic):
        return setting.item()
    if isinstance(setting, str | GLLiMParameters) or not isinstance(setting, Iterable):
        return setting
    return [_plain(value) for value in setting]


def _set_apart(test: xr.Dataset, names: Sequence[str]) -> tuple[xr.Dataset, xr.Dataset]:
    """The true parameters, and the spectra without them: no dimension or coordinate has a parameter's name."""
    indexed = {dim for name in names if name in test.xindexes for dim in test[name].dims}
    plain = test.reset_index(list(indexed)).reset_coords([name for name in names if name in test.coords])
    plain = plain.rename_dims({dim: f"{dim}_axis" for dim in plain.dims if dim in names})
    return plain[list(names)], plain.drop_vars(list(names))


def _broadcast(truth: xr.DataArray, estimate: xr.DataArray) -> xr.DataArray:
    """The truth, repeated along dimensions that only the estimate has."""
    added = {dim: size for dim, size in estimate.sizes.items() if dim not in truth.dims}
    return truth.expand_dims(added)


def load_inverter(path: str | Path) -> GLLiMInverter:
    """Read a trained inverter from a netCDF file written by :meth:`GLLiMInverter.to_netcdf`.

    Raises FileNotFoundError, or ValueError where the file is truncated, not a model, or of another schema.
    """
    return GLLiMInverter.from_netcdf(path)
