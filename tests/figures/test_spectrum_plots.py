"""Figures of one spectrum and of training: what is drawn is what the model and the training set say."""

import dask.array as da
import numpy as np
import pytest
import xarray as xr

from labelled import WAVELENGTHS, fitted, make_cube, make_training, make_truth, refuses, unsupervised
from specinvert import GLLiMInverter
from specinvert.cubes.bands import Bands
from specinvert.cubes.labels import subsample
from specinvert.figures import plot_convergence, plot_spectrum, plot_training
from specinvert.figures.layout import BandAxis
from specinvert.figures.spectrum import MAX_SAMPLES, PERCENTILES

ORDER = np.argsort(WAVELENGTHS)
PIXEL = {"y": 2, "x": 3}


def line(figure, label):
    """Data of the first line with a label, in any panel."""
    return next(ln.get_data() for ax in figure.axes for ln in ax.lines if ln.get_label() == label)


def test_the_spectrum_is_drawn_by_wavelength_with_its_fit_and_residual():
    cube = make_cube().isel(PIXEL)
    figure = plot_spectrum(fitted(1), cube, truth=make_truth().isel(PIXEL).data_vars)
    residual = fitted(1).invert(cube, outputs=["residual"])["residual"].values
    places, observed = line(figure, "observed")
    np.testing.assert_array_equal(places, WAVELENGTHS[ORDER])
    np.testing.assert_allclose(observed, cube.values[ORDER])
    np.testing.assert_allclose(line(figure, "fitted")[1], (cube.values - residual)[ORDER])
    np.testing.assert_allclose(line(figure, "observed less fitted")[1], residual[ORDER])
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    mean = float(fitted(1).invert(cube)["water"])
    assert titles[0].startswith(f"fit RMSE {np.sqrt((residual**2).mean()):.3g};")
    assert titles[1] == f"water: {mean:.4g} g m-2"
    assert float(line(figure, "true")[0][0]) == float(make_truth()["water"].isel(PIXEL))
    assert any("training range, 0.0" in text.get_text() for ax in figure.axes for text in ax.texts)


def test_the_band_about_the_residuals_is_two_deviations_of_model_and_declared_noise():
    cube = make_cube().isel(PIXEL)
    theta = fitted().parameters_
    weight = fitted().posterior(cube, noise=0.3)["weight"].values
    bands = [
        plot_spectrum(fitted(), cube, noise=noise).axes[1].collections[0] for noise in (None, 0.3, np.full(8, 0.3))
    ]
    heights = [np.abs(band.get_paths()[0].vertices[:, 1]).max() for band in bands]
    assert heights[1] == pytest.approx(2 * np.sqrt(weight @ theta.Sigma + 0.09), rel=1e-3)
    assert heights[2] == pytest.approx(heights[1], rel=1e-6)
    assert heights[0] < 0.5 * heights[1]


def test_a_known_parameter_has_no_density_and_missing_bands_are_gaps():
    cube = make_cube().isel(PIXEL)
    cube[3] = np.nan
    figure = plot_spectrum(fitted(), cube.expand_dims("time"), known={"dust": 0.5})
    assert np.isnan(line(figure, "observed")[1]).sum() == 1
    assert [text.get_text() for ax in figure.axes for text in ax.texts].count("known") == 1


def test_a_model_without_parameters_has_the_fit_alone():
    figure = plot_spectrum(unsupervised(), make_cube().isel(PIXEL))
    assert len(figure.axes) == 2


def test_a_spectrum_that_cannot_be_shown_is_refused():
    with refuses(ValueError, "spectra over {'y': 5, 'x': 6}", ".isel(y=0, x=0)"):
        plot_spectrum(fitted(), make_cube())
    with refuses(ValueError, "too few bands"):
        plot_spectrum(fitted(), make_cube().isel(PIXEL) * np.nan)
    with refuses(ValueError, "known by an interval"):
        plot_spectrum(fitted(), make_cube().isel(PIXEL), known={"dust": (0.2, 0.6)})
    for draw in (lambda i: plot_spectrum(i, make_cube().isel(PIXEL)), plot_convergence):
        with refuses(ValueError, "not fitted"):
            draw(GLLiMInverter())


def test_lines_break_where_bands_are_left_out():
    nanometres = np.concatenate([np.arange(400.0, 900.0, 20.0), np.arange(1200.0, 1400.0, 20.0)])
    axis = BandAxis.of(Bands("band", nanometres.size, nanometres[::-1], "um"))
    x, y = axis.x, axis.y(np.arange(nanometres.size))
    assert axis.label == "wavelength (um)"
    (gap,) = np.flatnonzero(np.isnan(y))
    assert (x[gap - 1], x[gap + 1]) == (0.88, 1.2)
    assert (y[0], y[-1]) == (nanometres.size - 1, 0)


def test_a_training_set_is_drawn_with_percentiles_and_histograms():
    training = make_training()
    figure = plot_training(training)
    spectra, water, dust = figure.axes
    expected = np.percentile(training.reflectance.values, PERCENTILES, axis=0)[:, ORDER]
    np.testing.assert_allclose(spectra.lines[0].get_ydata(), expected[2])
    outer = spectra.collections[0].get_paths()[0].vertices[:, 1]
    assert (outer.min(), outer.max()) == (expected[0].min(), expected[4].max())
    assert (water.get_xlabel(), dust.get_xlabel()) == ("water (g m-2)", "dust")
    assert sum(bar.get_height() for bar in water.patches) == 150
    assert len(plot_training(training, parameters=["dust"]).axes) == 2
    with refuses(ValueError, "'snow'"):
        plot_training(training, parameters=["snow"])


def test_a_parameter_over_decades_has_a_logarithmic_histogram_of_all_its_samples():
    training = make_training()
    soot = training.water.copy(data=np.geomspace(1e-9, 1e-5, training.water.size))
    _, drawn = plot_training(training.assign(soot=soot), parameters=["soot"]).axes
    assert drawn.get_xscale() == "log"
    heights = [bar.get_height() for bar in drawn.patches]
    assert sum(heights) == soot.size
    assert max(heights) <= 2 * min(heights)


def test_of_lazy_spectra_only_a_fixed_choice_is_read():
    read = []

    def block(block_info=None):
        read.append(1)
        return np.zeros(block_info[None]["chunk-shape"])

    n = 40 * MAX_SAMPLES
    data = da.map_blocks(block, chunks=((MAX_SAMPLES,) * 40, (8,)), dtype=float, meta=np.empty((0, 0)))
    lazy = xr.DataArray(data, dims=("sample", "band"))
    chosen = subsample(lazy, ["sample"], 30)
    assert not read
    assert chosen.compute().shape == (30, 8)
    assert len(read) <= 30
    numbers = xr.DataArray(np.arange(n).reshape(-1, 40), dims=("a", "b"))
    first, again = (subsample(numbers, ["a", "b"], 500).values for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first)) == 500
    assert len(np.unique(first % 40)) == 40
    assert subsample(numbers, ["a", "b"], n) is numbers


def test_convergence_is_drawn_in_nats_a_sample():
    left, right = plot_convergence(fitted()).axes
    curve = fitted().log_likelihoods_ / 150
    np.testing.assert_allclose(left.lines[0].get_ydata(), curve)
    np.testing.assert_allclose(right.lines[0].get_ydata(), np.diff(curve))
    assert left.get_title() == "not converged"
