"""Metrics: known answers by hand, NaN pairs, grids that do not match, lazy input."""

import dask
import dask.array
import numpy as np
import pytest
import xarray as xr

from specinvert.scores.metrics import evaluation, format_table, nrmse, shared_parameters


def line(values, **attrs):
    return xr.DataArray(np.asarray(values, dtype=float), dims="sample", attrs=attrs)


@pytest.fixture
def maps_and_truth():
    rng = np.random.default_rng(3)
    coords = {"y": 8.7e6 - 30.0 * np.arange(40), "x": 5e5 + 30.0 * np.arange(50)}
    truth = xr.Dataset(
        {
            "ice": (("y", "x"), rng.random((40, 50)), {"units": "1"}),
            "size": (("y", "x"), 100.0 + 50.0 * rng.random((40, 50)), {"units": "um"}),
        },
        coords=coords,
    )
    maps = xr.Dataset(
        {
            "ice": truth.ice + 0.1 * rng.standard_normal((40, 50)),
            "size": truth["size"] * 0.9,
            "ice_std": 0.1 + 0.0 * truth.ice,
            "quality_flag": (("y", "x"), np.zeros((40, 50), np.uint8)),
        }
    )
    maps["ice"].attrs["units"] = "1"
    maps["size"].attrs["units"] = "um"
    maps.ice[3, 4] = np.nan
    return maps, truth


def test_nrmse_equals_the_value_worked_by_hand():
    # errors 1, 0, -1, 2: SSE 6; truth 0, 2, 4, 6 about 3: SST 20
    truth = line([0.0, 2.0, 4.0, 6.0])
    assert float(nrmse(line([1.0, 2.0, 3.0, 8.0]), truth)) == pytest.approx(np.sqrt(6 / 20), rel=1e-14)


def test_estimating_the_mean_of_the_truth_gives_nrmse_one():
    assert float(nrmse(line([3.0, 3.0, 3.0]), line([1.0, 2.0, 6.0]))) == pytest.approx(1.0, rel=1e-14)


def test_every_metric_equals_the_value_worked_by_hand():
    truth = xr.Dataset({"p": line([0.0, 2.0, 4.0, 6.0], units="cm")})
    estimate = xr.Dataset({"p": line([1.0, 2.0, 3.0, 8.0], units="cm")})
    table = evaluation(estimate, truth, ["p"]).isel(parameter=0)
    assert float(table.rmse) == pytest.approx(np.sqrt(1.5))
    assert float(table.bias) == pytest.approx(0.5)
    assert float(table.r2) == pytest.approx(1 - 6 / 20)
    assert float(table.correlation_squared) == pytest.approx(
        np.corrcoef([0, 2, 4, 6], [1, 2, 3, 8])[0, 1] ** 2, rel=1e-12
    )
    assert int(table.n) == 4
    assert table.rmse.attrs["units"] == table.bias.attrs["units"] == "cm"
    assert table.nrmse.attrs["units"] == "1"


def test_r2_falls_below_zero_while_the_squared_correlation_of_a_line_stays_one():
    truth = line([1.0, 2.0, 3.0])
    table = evaluation({"p": 10.0 - 2.0 * truth}, {"p": truth}, ["p"])
    assert float(table.r2[0]) < 0
    assert float(table.correlation_squared[0]) == pytest.approx(1.0)


def test_pairs_with_a_nan_on_either_side_are_left_out():
    truth = line([0.0, np.nan, 2.0, 4.0, 6.0, 100.0])
    estimate = line([1.0, 50.0, 2.0, 3.0, 8.0, np.nan])
    table = evaluation({"p": estimate}, {"p": truth}, ["p"])
    assert int(table.n[0]) == 4
    assert float(table.nrmse[0]) == pytest.approx(np.sqrt(6 / 20))


@pytest.mark.parametrize("value", [0.1, 1e8 + 0.1])
def test_a_constant_truth_gives_nan_and_no_warning(value):
    truth = line([value] * 7)
    table = evaluation({"p": truth + 1.0}, {"p": truth}, ["p"]).isel(parameter=0)
    assert np.isnan([float(table.nrmse), float(table.r2), float(table.correlation_squared)]).all()
    assert float(table.rmse) == pytest.approx(1.0)


def test_a_constant_estimate_has_no_correlation_and_no_warning():
    table = evaluation({"p": line([2.0, 2.0, 2.0])}, {"p": line([1.0, 2.0, 3.0])}, ["p"])
    assert np.isnan(float(table.correlation_squared[0]))
    assert float(table.nrmse[0]) == pytest.approx(1.0)


@pytest.mark.parametrize("lazy", [False, True])
def test_no_pair_left_gives_nan_and_a_count_of_zero(lazy):
    estimate = line([np.nan, 1.0]).chunk(sample=1) if lazy else line([np.nan, 1.0])
    table = evaluation({"p": estimate}, {"p": line([1.0, np.nan])}, ["p"]).isel(parameter=0)
    assert int(table.n) == 0
    assert all(np.isnan(float(table[name])) for name in ("nrmse", "rmse", "bias", "r2"))


@pytest.mark.parametrize("chunks", [{}, {"sample": 2}])
def test_an_infinite_estimate_is_an_infinite_error_and_no_warning(chunks):
    estimate = line([np.inf, 1.0, 2.0, np.nan]).chunk(chunks) if chunks else line([np.inf, 1.0, 2.0, np.nan])
    table = evaluation({"p": estimate}, {"p": line([0.0, 1.0, 2.0, 3.0])}, ["p"])
    assert np.isinf(float(table.nrmse[0]))


def test_float32_maps_with_a_large_offset_are_compared_in_double_precision():
    truth = (1e4 + np.arange(1000.0) / 1000).astype(np.float32)
    estimate = (truth + np.float32(0.25)).astype(np.float32)
    got = nrmse(xr.DataArray(estimate, dims="s"), xr.DataArray(truth, dims="s"))
    t, e = truth.astype(float), estimate.astype(float)
    assert float(got) == pytest.approx(np.sqrt(((e - t) ** 2).sum() / ((t - t.mean()) ** 2).sum()), rel=1e-10)


def test_a_dataset_gives_one_scalar_for_each_shared_parameter_only(maps_and_truth):
    maps, truth = maps_and_truth
    result = nrmse(maps, truth.assign(haze=truth.ice))
    assert list(result.data_vars) == ["ice", "size"]
    assert all(values.shape == () for values in result.data_vars.values())
    assert float(result["size"]) == pytest.approx(float(nrmse(maps["size"], truth["size"])))


def test_outputs_of_an_inversion_are_not_parameters(maps_and_truth):
    maps, _ = maps_and_truth
    crs = xr.DataArray(0, attrs={"grid_mapping_name": "transverse_mercator"})
    maps = maps.assign(ice_q05=maps.ice, ice_hdi90_lower=maps.ice, soil_std=maps.ice, spatial_ref=crs)
    assert shared_parameters(maps, maps) == ["ice", "size", "soil_std"]


def test_dimension_order_does_not_matter(maps_and_truth):
    maps, truth = maps_and_truth
    xr.testing.assert_identical(nrmse(maps, truth.transpose("x", "y")), nrmse(maps, truth))


def test_coordinates_that_differ_in_the_last_digits_pair_by_position(maps_and_truth):
    maps, truth = maps_and_truth
    nudged = truth.assign_coords(x=truth.x + 1e-6)
    table = evaluation(maps, nudged, ["ice", "size"])
    xr.testing.assert_identical(table, evaluation(maps, truth, ["ice", "size"]))
    assert table.n.values.tolist() == [40 * 50 - 1, 40 * 50]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.assign_coords(x=t.x + 15.0), "x of ice differs from the truth's by up to 15"),
        (lambda t: t.isel(y=slice(None, None, -1)), "y of ice differs"),
        (lambda t: t.isel(x=slice(1, None)), "sizes .*crop both"),
        (lambda t: t.rename(x="lon"), "dimensions .*make them equal"),
        (lambda t: t.assign_coords(x=[f"c{i}" for i in range(50)]), "x of ice differs"),
        (lambda t: t.rename(ice="snow"), r"truth lack \['ice'\]"),
    ],
)
def test_grids_that_do_not_match_are_an_error_not_a_smaller_array(maps_and_truth, change, message):
    maps, truth = maps_and_truth
    with pytest.raises(ValueError, match=message):
        evaluation(maps, change(truth), ["ice"])


def test_contradicting_units_are_an_error_and_two_spellings_of_micro_are_not(maps_and_truth):
    maps, truth = maps_and_truth
    truth["size"].attrs["units"] = "µm"
    nrmse(maps, truth)
    truth["size"].attrs["units"] = "mm"
    with pytest.raises(ValueError, match="size is in 'um' but its truth in 'mm'"):
        nrmse(maps, truth)


def test_nothing_in_common_and_mixed_types_are_errors(maps_and_truth):
    maps, truth = maps_and_truth
    with pytest.raises(ValueError, match="no parameter in common"):
        nrmse(maps, truth[["ice"]].rename(ice="haze"))
    with pytest.raises(TypeError, match="Dataset with DataArray"):
        nrmse(maps, truth.ice)
    with pytest.raises(ValueError, match="parameters is empty"):
        evaluation(maps, truth, [])


@pytest.mark.parametrize("lazy", ["maps", "truth", "both"])
def test_lazy_input_is_computed_once_and_agrees_with_numpy(maps_and_truth, lazy):
    maps, truth = maps_and_truth
    expected = evaluation(maps, truth, ["ice", "size"])
    calls = []

    def counted(block):
        calls.append(block.shape)
        return block

    def chunked(dataset, y, x):
        lazy_one = dataset.chunk({"y": y, "x": x})
        return lazy_one.map(lambda v: v.copy(data=v.data.map_blocks(counted, dtype=v.dtype, meta=v.data._meta)))

    maps_ = chunked(maps, 20, 25) if lazy in ("maps", "both") else maps
    truth_ = chunked(truth, 20, 25) if lazy in ("truth", "both") else truth
    with dask.config.set(scheduler="synchronous"):
        got = evaluation(maps_, truth_, ["ice", "size"])
    xr.testing.assert_allclose(got, expected, rtol=1e-12)
    assert len(calls) == 2 * 4 * (2 if lazy == "both" else 1)


def test_the_table_is_aligned_and_shows_units(maps_and_truth):
    maps, truth = maps_and_truth
    lines = format_table(evaluation(maps, truth, ["ice", "size"])).splitlines()
    assert lines[0].split() == [
        "parameter",
        "units",
        "nrmse",
        "rmse",
        "bias",
        "r2",
        "correlation_squared",
        "n",
    ]
    assert lines[1].split()[:2] == ["ice", "1"]
    assert lines[2].split()[:2] == ["size", "um"]
    assert len({len(text) for text in lines}) == 1
    assert lines[2].split()[-1] == "2000"


def test_the_table_shows_added_columns_and_no_units_column_without_units():
    truth = xr.Dataset({"p": line([1.0, 2.0, 3.0])})
    table = evaluation(truth, truth, ["p"]).assign(coverage_90=("parameter", [0.875]))
    header, row = format_table(table).splitlines()
    assert "units" not in header.split()
    assert header.split()[-1] == "coverage_90"
    assert row.split()[-1] == "0.875"
    with pytest.raises(ValueError, match="give the result of evaluation"):
        format_table(truth)
