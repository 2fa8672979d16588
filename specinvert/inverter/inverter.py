"""GLLiMInverter: labelled simulations in, a trained model; labelled spectra in, labelled parameter maps out."""

from __future__ import annotations

import numbers
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from ..cubes import DEFAULT_OUTPUTS, require_flags
from ..gllim.em import FitProgress, check_progress
from ..io import CheckpointFile, load_model, save_model
from ..model import Model
from ..progress import reporting
from ..settings import AUTO, InverterSettings, documented
from .automatic import committee_settings, fit_automatic
from .calibration import calibrated
from .explanation import recalibrated
from .fit import TrainingOptions, plain, read_settings
from .inversion import Inversion, simulate


@documented
class GLLiMInverter(InverterSettings):
    """Trains on labelled simulated spectra, then turns spectra of any shape into parameters with uncertainties.

    Parameters
    ----------
    {settings}

    Attributes
    ----------
    parameters_ : GLLiMParameters in the user's units, after ``transforms``; of the first member of a committee, all of
        which are ``members_``.
    log_likelihoods_, n_iter_, converged_ : observed log-likelihood after each iteration, their number, and whether
        ``tol`` stopped them.
    n_components_, n_latent_, n_removed_ : what was kept, chosen, and removed as degenerate.
    bic_, bics_ : BIC of the fit, and of each L_w tried.
    summary_ : :class:`specinvert.model.Summary` of errors and coverage on samples held out, and of how settings were
        chosen; None where it was not asked for.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> simulated = simulate_mixtures(600, noise=0.005, seed=1)
    >>> training, test = simulated.isel(sample=slice(500)), simulated.isel(sample=slice(500, 600))
    >>> inverter = GLLiMInverter(n_components=4, n_latent=2, tol=0.1, random_state=0)
    >>> inverter.fit(training, parameters=["ice_fraction", "grain_size"])
    <GLLiMInverter n_components=4, n_latent=2, sigma='iso', tied_sigma=False: 121 bands -> ice_fraction, grain_size>
    >>> maps = inverter.invert(test["reflectance"], noise=0.002, outputs=["mean", "q05", "q95", "flag"])
    >>> list(maps)[:3], maps.sizes["sample"]
    (['ice_fraction', 'grain_size', 'ice_fraction_q05'], 100)
    >>> dict(inverter.posterior(test["reflectance"][:2])["covariance"].sizes)
    {'sample': 2, 'component': 4, 'parameter': 2, 'parameter_2': 2}
    >>> dict(inverter.simulate(test[["ice_fraction", "grain_size"]]).sizes)
    {'sample': 100, 'wavelength': 121}
    >>> bool((inverter.evaluate(test)["nrmse"] < 0.5).all())
    True
    """

    def __post_init__(self) -> None:
        read_settings(self)

    def __repr__(self) -> str:
        values = {name: plain(getattr(self, name)) for name in ("n_components", "n_latent", "sigma", "tied_sigma")}
        state = "unfitted"
        if hasattr(self, "model_"):
            state = f"{self.model_.bands.size} bands -> {', '.join(self.model_.names) or 'latents'}"
            theta = self.model_.theta
            known = {"n_components": theta.n_components, "n_latent": theta.n_latent, "sigma": theta.constraints.sigma}
            values |= {name: value for name, value in known.items() if values[name] == AUTO}
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
        return f"<GLLiMInverter {shown}: {state}>"

    def fit(
        self,
        training: xr.Dataset,
        spectra: str | None = None,
        parameters: Sequence[str] | None = None,
        band_dim: str | None = None,
        weights: Any = None,
        noise: Any = None,
        *,
        sensor: Any = None,
        responsibilities: Any = None,
        missing: str = "raise",
        rechunk: str | None = None,
        persist: bool | str = "auto",
        checkpoint: str | PathLike[str] | None = None,
        progress: FitProgress | bool | None = None,
        assess: bool | None = None,
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
        noise : one draw of it is added to every spectrum, seeded by ``random_state`` where that is a number: standard
            deviations in the units of the spectra, one or one a band, or a :mod:`specinvert.nuisance`. With ``sensor``
            it is that of the bands kept, after resampling.
        sensor : a cube, or what else :func:`specinvert.resample` takes: spectra are first averaged to its bands, those
            with ``good`` False left out. Training must cover them all.
        responsibilities : (n, K) array to start from instead of ``init``.
        missing : ``"raise"`` on samples with NaN, or ``"drop"`` them.
        rechunk : ``"auto"`` to merge bands that are split into several chunks.
        persist : whether dask keeps the spectra in memory between iterations, or reads them again for each;
            ``"auto"`` keeps up to 1 GB.
        checkpoint : a file in which the state of EM is kept every few iterations; where it exists, a stopped training
            goes on from it to the same result as one never stopped. Removed when training is done.
        progress : False for none, True for bars, which are shown by default on a terminal and in a notebook; or a
            function, called after each EM iteration with a label, the iteration and the log-likelihood.
        assess : whether to fit once more without a part of the samples (five times where they are few), for
            ``summary_``, the errors and coverage on these, and to recalibrate quantiles by them. None: where settings
            are looked for.

        Returns
        -------
        The inverter, fitted.

        Raises
        ------
        ValueError : what is wrong with the data or the settings, before any work.
        """
        settings = read_settings(self)
        members = committee_settings(self, settings, responsibilities)
        check_progress(None if isinstance(progress, bool) else progress)
        if assess is not None:
            require_flags(assess=assess)
        keeper = None if checkpoint is None else CheckpointFile(checkpoint)
        options = TrainingOptions(
            *(spectra, parameters, band_dim, weights, missing, rechunk, persist, noise, sensor, responsibilities)
        )
        data, added = options.read(training, self, self.random_state)
        with reporting(progress, lambda bars: bars.training(self.max_iter)) as report:
            model = fit_automatic(self, settings, members, data, assess, report, keeper)
        self._take(replace(model, training_noise=None if added is None else added * np.ones(data.bands.size)))
        if keeper is not None:
            keeper.remove(len(members))
        return self

    def invert(
        self,
        cube: xr.DataArray | xr.Dataset,
        noise: Any = None,
        known: Any = None,
        outputs: Sequence[str] = DEFAULT_OUTPUTS,
        *,
        band_dim: str | None = None,
        tolerance: float = 1.0,
        rechunk: str | None = None,
        min_valid_bands: int | None = None,
        noise_includes_training: bool = False,
    ) -> xr.Dataset:
        """Maps of the parameters (eq. JGMM_inverse_exp) of every spectrum, lazy if the cube is.

        Parameters
        ----------
        cube : spectra with a band dimension at any place and any other dimensions, which keep their order. NaN bands
            are marginalised exactly, and so are bands whose coordinate ``good`` is False.
        noise : standard deviations beyond the noise of training, in the units of the spectra: a number, one a band
            (D,), a DataArray over bands, pixels or both, or a covariance (D, D). Where one a
            pixel is NaN, the band counts as missing there.
        known : parameters known at inversion, a Dataset or dict of numbers or DataArrays over pixels, in physical
            units; NaN where unknown. A known parameter is returned as given with std 0. A pair (low, high) says that
            one parameter lies in an interval.
        outputs : ``"estimate"`` -> ``p``, the median under a log or a logit, else the mean; ``"mean"`` -> ``p``;
            ``"median"`` -> ``p_median``; ``"std"`` -> ``p_std``; ``"q05"`` (any digits) -> ``p_q05``; ``"ci90"`` and
            ``"hdi90"`` -> ``p_ci90_lower`` and ``p_ci90_upper``, the central and the shortest interval; ``"mode"`` ->
            ``p_mode``, of the highest mode of the joint density; ``"n_modes"``; ``"modes3"`` (any number) ->
            ``p_modes`` and ``mode_mass`` (..., mode_rank); ``"draws100"`` (any number) -> ``p_draws`` (..., draw), the
            same for a spectrum in any chunks; ``"cov"`` -> ``covariance`` (..., parameter, parameter_2); ``"latent"``
            -> ``latent`` (..., latent_dim); ``"entropy"``; ``"residual"`` (..., band) and ``"fit_rmse"`` of the
            mean of the spectra that the components reconstruct; ``"log_evidence"``; ``"flag"`` -> ``quality_flag``;
            ``"flags"`` -> ``p_flag``, of each parameter; ``"information"`` -> ``p_information``, nats that the spectrum
            tells.
        band_dim : the band dimension, where no wavelength coordinate tells.
        tolerance : largest difference in nm between a band of training and its partner in the cube.
        rechunk : ``"auto"`` to merge bands that are split into several chunks.
        min_valid_bands : a spectrum with fewer valid bands is no data; by default L_t + 1 or a tenth of the bands, the
            larger.
        noise_includes_training : whether ``noise`` includes what ``fit(noise=...)`` added, which is then taken from it.

        Raises
        ------
        ValueError : not fitted, bands that do not match, units that contradict, unknown outputs, an empty cube, noise
            that is negative or fits no bands, a known parameter that the model has not or beyond its bounds.
        """
        return inversion_of(
            self,
            noise=noise,
            known=known,
            band_dim=band_dim,
            tolerance=tolerance,
            rechunk=rechunk,
            min_valid_bands=min_valid_bands,
            noise_includes_training=noise_includes_training,
        ).maps(cube, outputs)

    def posterior(
        self,
        spectra: xr.DataArray | xr.Dataset,
        noise: Any = None,
        known: Any = None,
        *,
        n_components: int | None = None,
        **options: Any,
    ) -> xr.Dataset:
        """The Gaussian mixture p(parameters | spectrum) (eq. JGMM_inverse_map), in memory.

        Of the transformed parameters, where the model has transforms. Arguments and options are those of
        :meth:`invert`; a known parameter has its value as mean and no variance. With ``n_components`` the mixture of
        each spectrum is reduced to so many, those merged first that change it least (Runnalls, 2007), its mean and
        covariance kept.

        Returns
        -------
        Dataset of ``weight`` (..., component), ``mean`` (..., component, parameter), ``covariance`` (..., component,
        parameter, parameter_2) and ``log_evidence`` (...), NaN where a spectrum has no valid band.
        """
        options = {"rechunk": "auto", **options}
        return inversion_of(self, noise=noise, known=known, **options).posterior(spectra, n_components)

    def simulate(self, parameters: xr.Dataset, latent: xr.DataArray | None = None) -> xr.DataArray:
        """Spectra expected for parameters: the inverse regression (eq. JGMM_forward_exp). NaN where a parameter is.

        Parameters
        ----------
        parameters : Dataset with every parameter of training, of any dimensions, broadcast against each other.
        latent : values of the latents along a ``latent_dim`` dimension; None: each component's prior mean.

        Raises
        ------
        ValueError : not fitted, a parameter that is absent or infinite, or latents of the wrong size.
        """
        return simulate(model_of(self), parameters, latent)

    def evaluate(
        self,
        test: xr.Dataset,
        *,
        measured: bool = False,
        weights: str | xr.DataArray | None = None,
        groups: str | xr.DataArray | None = None,
        **options: Any,
    ) -> xr.Dataset:
        """Invert spectra whose parameters are known, and compare.

        Parameters
        ----------
        test : spectra and true parameters, variables or coordinates, of any dimensions; a cube with truth maps too.
            Simulated ones need the noise of training, as :func:`specinvert.nuisance.apply` adds it. Parameters that it
            lacks are not evaluated, and told by the attribute ``absent``.
        measured : whether the truth was measured, not simulated: other advice fits then.
        weights : of the spectra, a variable's name or an array, zero or more.
        groups : which spectra belong together, such as the pixels of a site, a variable's name or an array: adds
            n_groups and the standard errors rmse_error and coverage_90_error, which take groups, not spectra, for
            independent (Liang and Zeger, 1986).
        options : of :meth:`invert`, such as ``noise``, ``known``, ``band_dim`` and ``tolerance``.

        Returns
        -------
        Dataset over ``parameter``: nrmse, rmse, bias, r2, correlation_squared, the number of pairs, the mean crps
        (without compositions), for parameters under a log the error in decades (rmse_decades) and its factor, and
        of the intervals coverage_50, coverage_90, coverage_95, ks_statistic and ks_p of the PIT values' uniformity
        (without weights), and calibration_error, the mean difference of coverage and level. The attributes ``check``
        and ``check_q``, one a window of ``check_bands``, say how well the spectra fit, as :meth:`check` does.
        """
        return inversion_of(self, **options).evaluate(test, measured, weights, groups)

    def check(
        self,
        cube: xr.DataArray | xr.Dataset,
        noise: Any = None,
        known: Any = None,
        *,
        n_spectra: int = 1000,
        **options: Any,
    ) -> xr.Dataset:
        """Compare spectra with those that the model expects: the posterior predictive check, which needs no truth.

        A fit swallows a part of any error of the spectra. So each band is predicted from all others, and each of four
        windows of bands (six from 20 bands) from those outside. An error that looks like another value of a parameter
        leaves no trace in spectra, and none here.

        Parameters
        ----------
        cube : spectra as :meth:`invert` takes them, of any size: a fixed random choice is read.
        noise, known : as in :meth:`invert`; no interval.
        n_spectra : how many are compared at most; fewer where each has noise or missing bands of its own, which takes
            time.
        options : further ones of :meth:`invert`, such as ``band_dim`` and ``tolerance``.

        Returns
        -------
        Dataset, in memory, of the bands of the model. Over ``left_out`` ("band": from all other bands; "window": from
        those outside of the window) and band: ``offset``, the mean error, and ``ratio``, the root mean square, both in
        standard deviations of the prediction; ``inside_90``, the share of values in its central 90 %; and
        ``predicted_std``. Over ``window``: ``q``, the mean squared error over predictive variance, 1 where the model is
        right, its standard error ``q_error``, ``window_offset``, ``window_inside_90`` and ``window_bands`` in words.
        Over band: quantiles of the ``observed`` and of the ``reconstructed`` spectra, ``residual`` and
        ``residual_std`` of their difference, in the units of the spectra. Of spectra under a transform, predictions are
        of the transformed ones. The attribute ``verdict`` says it in words, ``n_spectra`` of how many.

        Raises
        ------
        ValueError : not fitted, a parameter known by an interval, or as :meth:`invert`.

        Examples
        --------
        >>> from specinvert.physics.mixing import simulate_mixtures
        >>> training, scene = (simulate_mixtures(400, noise=0.01, seed=seed) for seed in (0, 1))
        >>> inverter = GLLiMInverter(4, n_latent=2, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
        >>> check = inverter.check(scene["reflectance"])
        >>> check.sizes["window"], check.attrs["n_spectra"]
        (6, 400)
        >>> brighter = scene["reflectance"] * xr.where(abs(scene["wavelength"] - 1500.0) < 100.0, 1.2, 1.0)
        >>> found = inverter.check(brighter)
        >>> str(found["window_bands"].values[found["q"].values.argmax()])
        '1446.7 to 1700 nm'
        >>> bool(found["q"].max() > 3.0 * check["q"].max())
        True
        """
        return inversion_of(self, noise=noise, known=known, **options).check(cube, n_spectra)

    def pit(self, test: xr.Dataset, **options: Any) -> xr.Dataset:
        """The probability integral transform of true parameters: the posterior's distribution function at the truth.

        Uniform where the posterior is calibrated; for :mod:`specinvert.scores.calibration`. Arguments are those of
        :meth:`evaluate`. NaN for parts of compositions and where nothing was estimated.
        """
        return inversion_of(self, **options).pit(test)

    def recalibrate(
        self, held_out: xr.Dataset, minimum: int = 2000, *, measured: bool = False, **options: Any
    ) -> GLLiMInverter:
        """Correct quantiles and central intervals on spectra held out of training (Kuleshov et al., 2018).

        The correction is stored in the model, and replaces an earlier one; means, standard deviations and shortest
        intervals stay. Returns the inverter.

        Parameters
        ----------
        held_out : spectra and true parameters, as :meth:`evaluate` takes them, with the noise of training.
        minimum : fewest pairs of truth and estimate; 50 are enough for 90 % intervals that hold 86 to 94 %.
        measured : whether the truths were measured, not simulated, which the model then tells.

        Raises
        ------
        ValueError : too few pairs, or a model with compositions.

        Warns
        -----
        UserWarning : the spectra lack the noise that training added to its own: intervals become too narrow.
        """
        if not isinstance(minimum, numbers.Integral) or isinstance(minimum, bool) or minimum < 1:
            raise ValueError(f"minimum={minimum!r} must be an integer, 1 or more")
        source = "measurements" if measured else "simulations"
        made = recalibrated(inversion_of(self, **options), held_out, int(minimum), source)
        for finding in made.findings:
            warnings.warn(f"{finding.title}. {finding.what} {finding.todo}", UserWarning, stacklevel=2)
        self._take(made.model)
        return self

    def calibrate(
        self,
        field: xr.Dataset | None,
        groups: str | Sequence[str] | xr.DataArray | None = None,
        *,
        correction: str = "auto",
        **options: Any,
    ) -> GLLiMInverter:
        """Correct estimates and intervals by a few field values, 15 in 4 groups or more; None undoes it.

        Bias and slope are corrected, of the transformed parameter, where groups of values left out gain by it, and
        intervals are made as wide as errors in groups left out ask (see :mod:`specinvert.scores`): quantiles, central
        and shortest intervals, standard deviations and covariances. Draws, modes and entropy are corrected for bias and
        slope, and keep the width of the posterior; so do scores of the density, such as crps. The calibration is stored
        in the model, on top of the recalibration of simulations, and replaces an earlier one. Each parameter is
        calibrated by itself, by the spectra that have a value of it. Returns the inverter.

        Parameters
        ----------
        field : spectra and measured parameters, as :meth:`evaluate` takes them, NaN where there is no value.
        groups : what values belong together by, as those of a site or a day do: a variable's name, several, of which
            each combination is a group, or an array. Groups must be like those that the maps will be of.
        correction : ``"auto"``, or ``"none"``, ``"bias"`` or ``"slope"`` (bias and slope), whether it pays or not.
        options : of :meth:`invert`, such as ``noise`` and ``known``. Invert with the same noise, else it is told.

        Raises
        ------
        ValueError : no parameter has values enough, values outside the bounds of its transform or without a group.

        Warns
        -----
        UserWarning : field values that do not follow the estimates, and parameters with too few.
        """
        if field is None:
            self._take(replace(model_of(self), calibration=None))
            return self
        if groups is None:
            raise ValueError("groups= must say which field values belong together, such as groups='site'")
        made = calibrated(inversion_of(self, **options), field, groups, correction)
        for finding in made.findings:
            warnings.warn(f"{finding.title}. {finding.what} {finding.todo}", UserWarning, stacklevel=2)
        self._take(made.model)
        return self

    def to_netcdf(self, path: str | PathLike[str]) -> None:
        """Write the model: arrays and attributes only, all that inversion elsewhere needs. Atomic."""
        save_model(model_of(self), path)

    @classmethod
    def from_netcdf(cls, path: str | PathLike[str]) -> GLLiMInverter:
        """Read a model written by :meth:`to_netcdf`, to the same bits."""
        model = load_model(path)
        try:
            inverter = cls(**model.settings, transforms=model.transforms.spec)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)}: damaged specinvert model: {error}") from None
        inverter._take(model)
        return inverter

    def _take(self, model: Model) -> None:
        """Become fitted: all that ends in an underscore is of the model."""
        self.model_ = model
        self.parameters_, self.members_ = model.theta, model.members
        self.n_components_, self.n_latent_ = model.theta.n_components, model.theta.n_latent
        self.summary_ = model.summary
        self.log_likelihoods_, self.n_iter_ = model.log_likelihoods, len(model.log_likelihoods)
        self.converged_, self.n_removed_ = model.converged, model.n_removed
        self.bics_, self.bic_ = model.bics, model.bics[model.theta.n_latent]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.endswith("_") and not name.startswith("_") and "model_" not in vars(self):
                raise AttributeError(f"this GLLiMInverter is not fitted, so it has no {name!r}: call fit first")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def model_id(self) -> str:
        """Short hash of the fitted parameters: the model's identity in its products."""
        return model_of(self).identity


def load_inverter(path: str | PathLike[str]) -> GLLiMInverter:
    """Read a trained inverter from a netCDF file written by :meth:`GLLiMInverter.to_netcdf`.

    Raises FileNotFoundError, or ValueError where the file is truncated, not a model, or of another schema.

    Examples
    --------
    >>> from specinvert.physics.mixing import simulate_mixtures
    >>> training = simulate_mixtures(300, noise=0.01)
    >>> inverter = GLLiMInverter(3, n_latent=0, tol=0.1, random_state=0).fit(training, parameters=["grain_size"])
    >>> inverter.to_netcdf("model.nc")
    >>> load_inverter("model.nc")
    <GLLiMInverter n_components=3, n_latent=0, sigma='iso', tied_sigma=False: 121 bands -> grain_size>
    """
    return GLLiMInverter.from_netcdf(path)


def model_of(inverter: GLLiMInverter) -> Model:
    """The model of an inverter; ValueError where it is not fitted."""
    model = vars(inverter).get("model_")
    if not isinstance(model, Model):
        raise ValueError("this GLLiMInverter is not fitted: call fit(training) or specinvert.load_inverter(path) first")
    return model


def inversion_of(inverter: GLLiMInverter, **options: Any) -> Inversion:
    """How an inverter inverts: options of :meth:`GLLiMInverter.invert` by name; ValueError where it is not fitted."""
    return Inversion.of(model_of(inverter), inverter.ensemble_weights == "evidence", options)
