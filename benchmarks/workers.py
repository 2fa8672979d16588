"""One against two worker processes of one thread each, and how much graph a block costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from data import Files
from distributed import Client, LocalCluster, wait
from distributed.protocol.pickle import dumps
from sizes import Sizes
from timing import Intervals, say, seconds_of

import specinvert


class MeasuringClient(Client):  # type: ignore[misc]
    """A client that notes the pickled bytes of each graph it is given."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.graph_bytes: list[int] = []

    def get(self, dsk: Any, keys: Any, **options: Any) -> Any:
        """Weigh a graph, then compute it."""
        self.graph_bytes.append(len(dumps(dsk)))
        return super().get(dsk, keys, **options)


def workers(sizes: Sizes, place: Files) -> list[dict[str, Any]]:
    """Speed-up of training (spectra kept on the workers) and of inversion (maps left there, and to netCDF)."""
    side = sizes.cube_side // 2
    say(f"  writing {sizes.worker_training:,} spectra and a cube of {side} x {side}")
    training = place.training(sizes.worker_training, sizes.chunk // 2, sizes.n_bands)
    cube = place.cube(side, sizes.cube_block, sizes.n_bands)
    model = place.model(sizes.n_bands, sizes.n_components, sizes.n_latent)
    seconds: dict[str, list[float]] = {}
    for n_workers in (1, 2):
        say(f"  {n_workers} worker{'s' if n_workers > 1 else ''}")
        options = {"n_workers": n_workers, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            cases: dict[str, Callable[[], float]] = {
                f"training, N={sizes.worker_training:,}": partial(_train, training, sizes, sizes.iterations),
                f"inversion, {side} x {side}": partial(_invert, client, model, cube),
                f"inversion to netCDF, {side} x {side}": partial(_save, model, cube, place.folder / "maps.nc"),
            }
            for name, case in cases.items():
                case()
                seconds.setdefault(name, []).append(float(np.median([case() for _ in range(3)])))
    return [
        {
            "what": name,
            "seconds": [one, two],
            "speed_up": one / two,
            "target": None if "netCDF" in name else 1.7,
        }
        for name, (one, two) in seconds.items()
    ]


def graphs(sizes: Sizes, place: Files) -> list[dict[str, Any]]:
    """Pickled bytes of the graph of an EM iteration and of an inversion, and what each further block adds."""
    say("  graphs")
    side, block, chunk = sizes.cube_side // 2, sizes.cube_block, sizes.chunk // 2
    training = place.training(sizes.worker_training, chunk, sizes.n_bands)
    model = place.model(sizes.n_bands, sizes.n_components, sizes.n_latent)
    found: dict[str, list[tuple[int, int]]] = {"EM iteration": [], "inversion": []}
    options = {"n_workers": 1, "threads_per_worker": 2, "processes": True, "dashboard_address": None}
    with LocalCluster(**options) as cluster, MeasuringClient(cluster) as client:
        for blocks in (2, sizes.worker_training // chunk):
            _train(training, sizes, 1, blocks * chunk)
            found["EM iteration"].append((blocks, client.graph_bytes[-1]))
        for length in (block, side):
            _maps(model, place.cube(length, block, sizes.n_bands)).compute()
            found["inversion"].append(((length // block) ** 2, client.graph_bytes[-1]))
    return [
        {
            "what": f"graph of an {name}",
            "blocks": many,
            "bytes": more,
            "bytes_a_block": (more - less) / (many - few),
            "target": 2_000,
        }
        for name, ((few, less), (many, more)) in found.items()
    ]


def _train(path: Path, sizes: Sizes, iterations: int, n: int | None = None) -> float:
    intervals = Intervals()
    with xr.open_zarr(path, consolidated=False) as data:
        inverter = specinvert.GLLiMInverter(
            sizes.n_components, sizes.n_latent, random_state=0, max_iter=iterations + 1, tol=0.0
        )
        inverter.fit(data.isel(sample=slice(n)), persist=True, progress=intervals)
    return float(np.median(intervals.seconds))


def _maps(model: Path, cube: Path) -> xr.Dataset:
    return specinvert.load_inverter(model).invert(specinvert.open_cube(cube))


def _invert(client: Client, model: Path, cube: Path) -> float:
    maps = _maps(model, cube)
    return seconds_of(lambda: wait(client.persist(maps)))


def _save(model: Path, cube: Path, path: Path) -> float:
    maps = _maps(model, cube)
    return seconds_of(lambda: specinvert.save_maps(maps, path))
