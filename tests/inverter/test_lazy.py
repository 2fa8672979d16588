"""Lazy inversion: the values of NumPy in any chunks, nothing computed early or twice, one small graph."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
from dask.base import tokenize
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from labelled import (
    PARAMETERS,
    QUICK,
    SIZES,
    assert_close,
    fitted,
    make_cube,
    make_responsibilities,
    make_training,
    refuses,
    unsupervised,
)
from specinvert import GLLiMInverter, load_inverter
from specinvert.cubes.engine import BlockInverter, Domain, Predictor
from specinvert.cubes.outputs import declare_outputs
from specinvert.gllim.core.threads import one_blas_thread

EVERY = ("mean", "std", "cov", "latent", "log_evidence", "flag")
NOISES = {0.02: "noise of 4 % of the signal", 5e-4: "noise of 1e-3 of the signal"}


def refusing_scheduler(*arguments: Any, **options: Any) -> None:
    raise AssertionError("something was computed")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of the blocks that the kernel was called on."""
    shapes: list[tuple[int, ...]] = []
    kernel = BlockInverter.__call__

    def counted(self: BlockInverter, block: np.ndarray) -> tuple[np.ndarray, ...]:
        shapes.append(block.shape)
        return kernel(self, block)

    monkeypatch.setattr(BlockInverter, "__call__", counted)
    return shapes


@st.composite
def chunkings(draw: st.DrawFn) -> tuple[list[str], dict[str, tuple[int, ...]]]:
    """Pixel dimensions and the band in any order, and irregular chunks of the pixels."""
    pixels = draw(st.sampled_from([("x",), ("y", "x"), ("time", "y", "x")]))
    chunks = {}
    for dim in pixels:
        cuts = draw(st.sets(st.integers(1, SIZES[dim] - 1)), dim)
        chunks[dim] = tuple(int(n) for n in np.diff([0, *sorted(cuts), SIZES[dim]]))
    return draw(st.permutations([*pixels, "band"]), "order"), chunks


@pytest.mark.parametrize("noise", NOISES, ids=NOISES.get)
@pytest.mark.parametrize(("sigma", "n_latent"), [("iso", 1), ("diag", 0), ("full", 1)])
@settings(max_examples=12)
@given(chunking=chunkings(), holes=st.sampled_from([0.0, 0.02, 0.3]), seed=st.integers(0, 99))
def test_lazy_maps_in_any_chunks_and_order_are_those_of_numpy(
    noise: float, sigma: str, n_latent: int, chunking: tuple[list[str], dict], holes: float, seed: int
) -> None:
    order, chunks = chunking
    cube = make_cube(tuple(order), noise=noise)
    cube = cube.where(np.random.default_rng(seed).uniform(size=cube.shape) >= holes)
    outputs = tuple(o for o in EVERY if n_latent or o != "latent")
    inverter = fitted(n_latent, sigma, noise)
    lazy = inverter.invert(cube.chunk(chunks), outputs=outputs)
    with dask.config.set(scheduler="synchronous"):
        assert_close(lazy.compute(), inverter.invert(cube, outputs=outputs), 1e-12)


@pytest.mark.parametrize("chunks", [{"y": 1, "x": 5}, {"y": 50}, {"y": 17, "x": 3}])
def test_lazy_maps_of_many_pixels_are_those_of_numpy(chunks: dict[str, int]) -> None:
    small = make_cube(noise=5e-4).drop_vars(["y", "x", "spatial_ref"])
    cube = xr.concat([small + 1e-3 * i for i in range(20)], dim="y").pad(x=(0, 6), mode="reflect")
    cube = cube.where(np.random.default_rng(0).uniform(size=cube.shape) > 0.01)
    assert cube.sizes["y"] * cube.sizes["x"] == 1200
    inverter = fitted(1, noise=5e-4)
    lazy = inverter.invert(cube.chunk(chunks), outputs=EVERY)
    assert_close(lazy.compute(), inverter.invert(cube, outputs=EVERY), 1e-12)


def test_float32_cubes_stay_float32_in_blocks() -> None:
    cube = make_cube(("band", "y", "x"), np.float32)
    lazy = fitted(1).invert(cube.chunk(y=2), outputs=EVERY)
    assert_close(lazy.compute(), fitted(1).invert(cube, outputs=EVERY), 1e-12)


@pytest.mark.parametrize("outputs", [EVERY, ("mean",), ("log_evidence",), ("flag",), ("latent",)])
def test_building_the_graph_computes_nothing(outputs: tuple[str, ...], calls: list) -> None:
    reads: list[Any] = []

    def read(block: np.ndarray) -> np.ndarray:
        reads.append(block.shape)
        return block

    cube = make_cube().chunk(y=2, x=3)
    cube = cube.copy(data=cube.data.map_blocks(read, dtype=cube.dtype, meta=np.empty((0, 0, 0))))
    cube["wavelength"].load()  # bands are matched at once
    with dask.config.set(scheduler=refusing_scheduler):
        maps = fitted(1).invert(cube, outputs=outputs)
    assert not calls
    assert not reads
    for name, array in maps.data_vars.items():
        assert isinstance(array.data, da.Array), name
        assert array.chunksizes["y"] == (2, 2, 1), name
    with pytest.raises(AssertionError, match="something was computed"), dask.config.set(scheduler=refusing_scheduler):
        maps.compute()


def test_a_dataset_computed_whole_inverts_each_block_once(calls: list) -> None:
    maps = fitted(1).invert(make_cube(("band", "y", "x")).chunk(y=2, x=3), outputs=EVERY)
    maps.compute()
    assert sorted(calls) == sorted([(h, w, 8) for h in (2, 2, 1) for w in (3, 3)])


def test_a_subset_inverts_only_its_blocks(calls: list) -> None:
    maps = fitted(1).invert(make_cube().chunk(y=2, x=3), outputs=EVERY)
    maps.isel(y=0, x=5).compute()
    assert calls == [(2, 3, 8)]


@pytest.mark.parametrize("order", [("y", "x", "band"), ("band", "y", "x")])
def test_a_band_dimension_in_chunks_is_an_error_with_the_call_that_helps(order: tuple[str, ...]) -> None:
    cube = make_cube(order).chunk(y=2, x=3, band=(5, 3))
    with refuses(ValueError, "'band'", "2 chunks", ".chunk({'band': -1})", "3.8e-07 GB a chunk", "rechunk='auto'"):
        fitted().invert(cube)
    expected = fitted().invert(make_cube(order))
    assert_close(fitted().invert(cube.chunk({"band": -1})).compute(), expected)
    assert_close(fitted().invert(cube, rechunk="auto").compute(), expected)
    with refuses(ValueError, "rechunk='yes'", "'auto'"):
        fitted().invert(cube, rechunk="yes")


def test_rechunking_keeps_the_size_of_chunks_bounded() -> None:
    values = da.zeros((8, 400, 500), chunks=(1, 400, 500))
    cube = xr.DataArray(values, dims=("band", "y", "x"), coords={"wavelength": make_cube()["wavelength"]})
    with dask.config.set({"array.chunk-size": "1MB"}):
        maps = fitted().invert(cube, rechunk="auto")
    largest = max(maps.chunksizes["y"]) * max(maps.chunksizes["x"]) * 8 * 8
    assert largest <= 1.25e6


def test_only_bands_that_are_split_are_merged() -> None:
    maps = fitted().invert(make_cube().chunk(y=2, x=3), rechunk="auto")
    assert maps.chunksizes["y"] == (2, 2, 1)
    assert maps.chunksizes["x"] == (3, 3)


def graph_of(inverter: GLLiMInverter, n_blocks: int) -> dict[Any, Any]:
    """The graph of maps of spectra of 300 bands in blocks."""
    cube = xr.DataArray(da.zeros((n_blocks, 4, 300), chunks=(1, 4, 300)), dims=("y", "x", "band"))
    (optimized,) = dask.optimize(inverter.invert(cube))
    return dict(optimized.__dask_graph__())


def test_the_model_travels_once_and_a_block_adds_little_to_the_graph() -> None:
    training = make_training(400)
    wide = training.isel(band=np.arange(300) % 8).drop_vars("wavelength")
    inverter = GLLiMInverter(n_components=8, n_latent=1, tol=0.0, max_iter=1)
    inverter.fit(wide, band_dim="band", responsibilities=make_responsibilities(training, 8))
    model_bytes = len(cloudpickle.dumps((inverter.parameters_, inverter.model_.held_out)))
    assert model_bytes > 50_000
    few, many = graph_of(inverter, 4), graph_of(inverter, 64)
    assert (len(cloudpickle.dumps(many)) - len(cloudpickle.dumps(few))) / 60 < 1000
    alone = [len(cloudpickle.dumps(task)) for task in many.values()]  # as a scheduler sends them
    assert sum(size > 5000 for size in alone) == 1
    assert max(alone) < model_bytes + 10_000


@pytest.mark.parametrize("make", [lambda: fitted(1), unsupervised], ids=["hybrid", "unsupervised"])
def test_an_inverter_survives_pickling_and_copying(make: Any) -> None:
    inverter, cube = make(), make_cube().chunk(y=2)
    outputs = EVERY if inverter.model_.names else ("latent", "log_evidence", "flag")
    expected = inverter.invert(cube, outputs=outputs)
    for twin in (pickle.loads(pickle.dumps(inverter)), copy.deepcopy(inverter), copy.copy(inverter)):
        assert_close(twin.invert(cube, outputs=outputs).compute(), expected.compute(), 0.0)
        assert repr(twin) == repr(inverter)
        assert twin.model_id == inverter.model_id


def test_an_unfitted_inverter_survives_pickling() -> None:
    twin = pickle.loads(pickle.dumps(GLLiMInverter(7, n_latent=0)))
    assert twin.n_components == 7
    assert not hasattr(twin, "parameters_")


def kernel_of(inverter: GLLiMInverter, **changes: Any) -> BlockInverter:
    declared = tuple(declare_outputs(("mean",), PARAMETERS, inverter.n_latent_))
    settings_ = {"bands": np.arange(8), "outputs": declared, "dtype": np.dtype(np.float64), "fill": None}
    model = inverter.model_
    predictor = Predictor(model.members, model.transforms, Domain(model.low, model.high, model.log_tail))
    return BlockInverter(predictor, **(settings_ | changes))


def test_equal_models_have_equal_tokens_and_others_others(tmp_path: Any) -> None:
    inverter = fitted(1)
    inverter.to_netcdf(tmp_path / "model.nc")
    token = tokenize(kernel_of(inverter))
    assert tokenize(kernel_of(pickle.loads(pickle.dumps(inverter)))) == token
    assert tokenize(kernel_of(load_inverter(tmp_path / "model.nc"))) == token
    again = GLLiMInverter(n_latent=1, **QUICK).fit(make_training())
    assert tokenize(kernel_of(again)) == token
    nudged = copy.deepcopy(inverter)
    nudged.parameters_.A[0, 0, 0] += 1e-13
    others = [
        kernel_of(fitted()),
        kernel_of(nudged),
        kernel_of(inverter, bands=np.arange(8)[::-1]),
        kernel_of(inverter, dtype=np.dtype(np.float32)),
        kernel_of(inverter, fill=-9999.0),
        kernel_of(inverter, outputs=tuple(declare_outputs(("std",), PARAMETERS, 1))),
    ]
    tokens = {tokenize(kernel) for kernel in others}
    assert len(tokens) == len(others)
    assert token not in tokens


def test_two_calls_alike_give_the_same_names_and_other_calls_others() -> None:
    cube = make_cube().chunk(y=2)
    names = {name: array.data.name for name, array in fitted().invert(cube).data_vars.items()}
    assert names == {name: array.data.name for name, array in fitted().invert(cube).data_vars.items()}
    other = fitted().invert(cube + 1.0)
    assert not set(names.values()) & {array.data.name for array in other.data_vars.values()}
    assert not set(names.values()) & {a.data.name for a in fitted(0, "diag").invert(cube).data_vars.values()}


def test_threads_and_processes_give_the_same_bits() -> None:
    maps = fitted(1).invert(make_cube().chunk(y=2, x=3), outputs=EVERY)
    expected = maps.compute(scheduler="synchronous")
    assert_close(maps.compute(scheduler="threads", num_workers=4), expected, 0.0)
    with dask.config.set(scheduler="processes", num_workers=2):
        assert_close(maps.compute(), expected, 0.0)


def test_blocks_leave_the_threads_of_blas_as_they_were() -> None:
    def pools() -> set[tuple[str, int]]:
        return {(p["filepath"], p["num_threads"]) for p in threadpool_info()}

    before = pools()
    maps = fitted(1).invert(make_cube().chunk(y=1, x=1), outputs=EVERY)
    maps.compute(scheduler="threads", num_workers=4)
    fitted(1).invert(make_cube(), outputs=EVERY)
    assert pools() == before


def test_blas_is_held_to_one_thread_in_whichever_thread_enters_first() -> None:
    def blas() -> list[int]:
        return [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]

    def inside() -> list[int]:
        with one_blas_thread():
            return blas()

    before = blas()
    assert set(inside()) == {1}
    with ThreadPoolExecutor(1) as pool:
        assert set(pool.submit(inside).result()) == {1}
    assert set(inside()) == {1}
    assert blas() == before


def test_many_threads_may_share_an_inverter() -> None:
    cube, found = make_cube(), {}
    expected = fitted(1).invert(cube, outputs=EVERY)

    def work(i: int) -> None:
        found[i] = fitted(1).invert(cube, outputs=EVERY)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    for maps in found.values():
        assert_close(maps, expected, 0.0)


def test_lazy_coordinates_may_have_chunks_of_their_own() -> None:
    lon = (("y", "x"), da.ones((5, 6), chunks=(4, 5)))
    cube = make_cube().chunk(y=2).assign_coords(lon=lon)
    cube["wavelength"].load()
    with dask.config.set(scheduler=refusing_scheduler):
        maps = fitted().invert(cube)
    assert maps["lon"].chunks == ((4, 1), (5, 1))
    np.testing.assert_array_equal(maps["water"].compute(), fitted().invert(make_cube())["water"])
