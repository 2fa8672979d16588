"""Calibration: known answers by hand, NaN and lazy PIT values, figures."""

import dask
import numpy as np
import pytest
import xarray as xr
from scipy.special import ndtr

from specinvert.figures import save_figure
from specinvert.figures.evaluation import plot_calibration
from specinvert.scores.calibration import (
    LEVELS,
    Recalibration,
    calibration_table,
    coverage,
    pit_histogram,
    uniformity,
)
from specinvert.scores.metrics import format_table


def samples(**values):
    return xr.Dataset({name: ("sample", np.asarray(v, dtype=float)) for name, v in values.items()})


def even(n):
    """As uniform as n values can be."""
    return (np.arange(n) + 0.5) / n


def gaussian_pit(rng, n, spread=1.0, shift=0.0):
    """PIT of Gaussian posteriors of std 1 whose truths are off by N(shift, spread**2)."""
    return ndtr(shift + spread * rng.standard_normal(n))


@pytest.fixture
def cube():
    rng = np.random.default_rng(5)
    pit = xr.Dataset({name: (("y", "x"), rng.random((40, 50))) for name in ("ice", "size")})
    pit.ice[3, 4] = np.nan
    return pit


def test_coverage_counts_truths_inside_central_intervals():
    pit = samples(p=[0.05, 0.5, 0.95, 0.96, 0.0])
    shares = coverage(pit, [0.0, 0.5, 0.9, 1.0])
    assert shares.coverage.dims == ("parameter", "level")
    assert shares.coverage.values[0].tolist() == [0.2, 0.2, 0.6, 1.0]
    np.testing.assert_allclose(shares.standard_error[0], np.sqrt([0, 0.25 / 5, 0.09 / 5, 0]))


def test_uniform_values_are_covered_as_each_level_says():
    shares = coverage(samples(p=even(10_000))).coverage
    assert shares.level.values.tolist() == list(LEVELS)
    np.testing.assert_allclose(shares[0], LEVELS, atol=1e-4)


def test_float32_values_on_the_end_of_an_interval_are_inside_it():
    pit = samples(p=[0.05, 0.95]).astype(np.float32)
    assert float(coverage(pit, [0.9 + 1e-6]).coverage[0, 0]) == 1.0


def test_the_histogram_of_uniform_values_is_flat_and_keeps_both_ends():
    histogram = pit_histogram(samples(p=even(2000), q=np.repeat([0.0, 1.0], 1000)))
    np.testing.assert_allclose(histogram.density[0], 1.0)
    assert histogram.density[1].values.tolist() == [10.0, *[0.0] * 18, 10.0]
    np.testing.assert_allclose(histogram["bin"], even(20))
    assert histogram.n.values.tolist() == [2000, 2000]


def test_the_band_holds_99_percent_of_the_bins_of_uniform_values():
    rng = np.random.default_rng(1)
    histogram = pit_histogram(xr.Dataset({f"p{i}": ("sample", rng.random(1000)) for i in range(100)}))
    inside = (histogram.density >= histogram.band_lower) & (histogram.density <= histogram.band_upper)
    assert 0.98 < float(inside.mean()) < 1.0


def test_a_constant_pit_of_one_half_is_inside_every_interval_and_far_from_uniform():
    pit = samples(p=[0.5] * 50)
    assert (coverage(pit).coverage == 1.0).all()
    tests = uniformity(pit).isel(parameter=0)
    assert (float(tests.ks_statistic), float(tests["mean"]), float(tests.variance)) == (0.5, 0.5, 0.0)
    assert float(tests.ks_p) < 1e-9
    table = calibration_table(pit).isel(parameter=0)
    assert float(table.coverage_50) == float(table.coverage_90) == float(table.coverage_95) == 1.0
    assert float(table.calibration_error) == pytest.approx(0.5)


def test_even_values_pass_the_test_of_uniformity():
    tests = uniformity(samples(p=even(1000))).isel(parameter=0)
    assert float(tests.ks_statistic) == pytest.approx(0.0005)
    assert float(tests.ks_p) == pytest.approx(1.0)
    assert float(tests["mean"]) == pytest.approx(0.5)
    assert float(tests.variance) == pytest.approx(1 / 12, rel=1e-5)
    assert int(tests.n) == 1000


def test_mean_and_variance_tell_bias_from_width():
    rng = np.random.default_rng(2)
    pit = samples(narrow=gaussian_pit(rng, 5000, 2.0), low=gaussian_pit(rng, 5000, shift=0.5))
    tests = uniformity(pit)
    assert float(tests.variance[0]) > 1.3 / 12
    assert abs(float(tests["mean"][0]) - 0.5) < 0.02
    assert float(tests["mean"][1]) > 0.6


def test_the_table_prints_one_line_a_parameter(cube):
    table = calibration_table(cube)
    names = ["coverage_50", "coverage_90", "coverage_95", "ks_statistic", "ks_p", "calibration_error"]
    assert list(table.data_vars) == names
    lines = format_table(table).splitlines()
    assert lines[0].split() == ["parameter", *names]
    assert [line.split()[0] for line in lines[1:]] == ["ice", "size"]


@pytest.mark.parametrize("function", [coverage, pit_histogram, uniformity, calibration_table])
def test_nan_is_left_out(function):
    values = np.random.default_rng(4).random(300)
    gaps = np.insert(values, [0, 100, 300], np.nan)
    xr.testing.assert_identical(function(samples(p=gaps)), function(samples(p=values)))


def test_a_parameter_without_values_is_nan_and_no_warning():
    pit = samples(p=[np.nan, np.nan], q=[0.3, 0.4])
    for result in (coverage(pit), pit_histogram(pit).drop_vars("n"), uniformity(pit).drop_vars("n")):
        assert result.isel(parameter=0).isnull().all().to_array().all()
        assert result.isel(parameter=1).notnull().all().to_array().all()
    assert calibration_table(pit).isel(parameter=0).isnull().to_array().all()
    assert uniformity(pit).n.values.tolist() == pit_histogram(pit).n.values.tolist() == [0, 2]


@pytest.mark.parametrize(
    "function",
    [coverage, pit_histogram, uniformity, calibration_table, plot_calibration, lambda p: Recalibration.of(p, 1000)],
)
def test_lazy_values_are_computed_once_and_agree_with_values_in_memory(cube, function):
    calls = []

    def counted(block):
        calls.append(block.shape)
        return block

    lazy = cube.chunk(y=20, x=25).map(
        lambda v: v.copy(data=v.data.map_blocks(counted, dtype=v.dtype, meta=v.data._meta))
    )
    with dask.config.set(scheduler="synchronous"):
        got = function(lazy)
    assert len(calls) == 2 * 4
    expected = function(cube)
    if isinstance(expected, xr.Dataset):
        xr.testing.assert_identical(got, expected)
    elif isinstance(expected, Recalibration):
        np.testing.assert_array_equal(got.raw, expected.raw)


@pytest.mark.parametrize("function", [coverage, pit_histogram, uniformity, calibration_table, Recalibration.of])
def test_values_that_are_no_probabilities_are_refused(function):
    with pytest.raises(ValueError, match=r"PIT values of lai run from 0\.1 to 7; .*between 0 and 1"):
        function(samples(lai=[0.1, np.nan, 7.0]))
    with pytest.raises(ValueError, match="holds no variable"):
        function(xr.Dataset())


def test_rounding_beyond_0_and_1_is_clipped_and_a_grid_mapping_is_no_parameter():
    pit = samples(p=[-1e-8, 0.5, 1 + 1e-7]).assign(crs=xr.DataArray(0, attrs={"grid_mapping_name": "sinusoidal"}))
    assert pit_histogram(pit).density.sum("bin").values.tolist() == [20.0]


@pytest.mark.parametrize("levels", [[], [0.5, 90], [np.nan], 0.9])
def test_levels_that_are_no_probabilities_are_refused(levels):
    with pytest.raises(ValueError, match=r"such as \[0.5, 0.9\]"):
        coverage(samples(p=[0.5]), levels)


def test_bins_below_one_are_refused():
    with pytest.raises(ValueError, match="bins=0"):
        pit_histogram(samples(p=[0.5]), 0)


def titles(figure):
    return [ax.get_title() for ax in figure.axes]


def test_the_figure_says_in_words_what_intervals_hold():
    rng = np.random.default_rng(0)
    pit = samples(
        leaf_area_index=even(3000),
        narrow=gaussian_pit(rng, 3000, 2.0),
        wide=gaussian_pit(rng, 3000, 0.5),
        low=gaussian_pit(rng, 3000, shift=0.5),
        high=gaussian_pit(rng, 3000, shift=-0.5),
    )
    figure = plot_calibration(pit)
    assert titles(figure)[:2] == ["as expected of calibrated posteriors", "90 % intervals hold 90 %"]
    assert titles(figure)[2::2] == [
        "posteriors too narrow",
        "posteriors too wide",
        "estimates too low",
        "estimates too high",
    ]
    held = coverage(pit, [0.9]).coverage.values[:, 0]
    assert titles(figure)[3] == f"90 % intervals hold {100 * held[1]:.0f} %"
    assert figure.axes[0].get_ylabel() == "leaf area index\ndensity"
    x, y = figure.axes[3].lines[1].get_data()
    assert dict(zip(np.round(x), y, strict=True))[90] == pytest.approx(100 * held[1])


def test_a_small_departure_of_many_values_is_not_called_a_fault():
    pit = samples(p=0.99 * even(100_000))
    assert float(uniformity(pit).ks_p[0]) < 0.01
    assert titles(plot_calibration(pit))[0] == "as expected of calibrated posteriors"


def test_few_values_and_none_at_all_are_drawn_without_warning(tmp_path):
    pit = samples(p=[np.nan, np.nan], q=[0.3, np.nan])
    figure = plot_calibration(pit)
    assert titles(figure)[0] == "no estimate"
    save_figure(figure, tmp_path / "calibration.png", dpi=30)
    save_figure(plot_calibration(pit[["p"]]), tmp_path / "none.png", dpi=30)
