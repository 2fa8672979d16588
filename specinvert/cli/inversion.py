"""``invert`` and ``orthorectify``: from cubes to maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .base import Command, Session
from .config import config_option, config_text, write_config
from .options import BAND_DIM, BANDS, DRY_RUN, EXCLUDE, FILE, NOISE, READER, SCHEDULER, TOLERANCE, Names
from .work import block_progress, cluster, require_spectra

COMPRESSION = click.option(
    "--compression", type=click.IntRange(0, 9), default=0, show_default=True, help="Deflate level, netCDF."
)


@click.command(cls=Command)
@click.argument("model", type=FILE)
@click.argument("cube", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Maps to write (.nc, .zarr or .tif).")
@config_option
@click.option("--outputs", type=Names(), default="mean,std,flag", show_default=True, help="What to compute.")
@NOISE
@click.option("--noise-includes-training/--no-noise-includes-training", help="Take the noise of training from --noise.")
@click.option(
    "--known",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter known here: incidence=30, incidence=angles.nc, or lai=0:3 for an interval; repeat it.",
)
@click.option("--variable", help="Variable that holds the cube, in a file of several.")
@READER
@BAND_DIM
@BANDS
@EXCLUDE
@click.option("--include-bad-bands/--no-include-bad-bands", help="Use bands that the file marks bad, too.")
@click.option(
    "--negative",
    type=click.Choice(["keep", "nan", "clip"]),
    default="keep",
    show_default=True,
    help="What becomes of negative values: nan makes them missing, clip 0.",
)
@click.option("--min-valid-bands", type=int, help="Fewer valid bands are no data.  [default: a tenth, or L_t + 1]")
@TOLERANCE
@click.option("--orthorectify/--no-orthorectify", help="Resample the maps of a swath by the lookup in CUBE.")
@COMPRESSION
@click.option("--resume", is_flag=True, help="Go on with the blocks that a stopped run left behind.")
@DRY_RUN
@SCHEDULER
def invert(
    model: Path,
    cube: Path,
    output: Path,
    outputs: list[str],
    noise: str | None,
    known: tuple[str, ...],
    variable: str | None,
    reader: str | None,
    band_dim: str | None,
    bands: str | None,
    exclude: str | None,
    include_bad_bands: bool,
    negative: str,
    orthorectify: bool,
    compression: int,
    resume: bool,
    dry_run: bool,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Invert CUBE with MODEL into maps of parameters, uncertainties and flags, block by block.

    CUBE is a product of a known sensor, netCDF, Zarr, ENVI, GeoTIFF, MATLAB, CSV, or what else GDAL reads.
    The options in effect are written to OUTPUT.toml, for --config.

    \b
    specinvert invert model.nc scene.nc -o maps.nc
    specinvert invert model.nc scene.hdr -o maps.tif --noise noise.csv --exclude 1350-1450,1800-1950
    specinvert invert model.nc scene.nc -o maps.nc --known incidence=30 --resume
    """
    from ..inverter import load_inverter
    from ..io.atomic import check_target
    from ..io.open import open_cube
    from ..io.orthorectify import orthorectify as to_grid
    from ..io.orthorectify import read_lookup
    from ..io.writers import save_maps
    from .dry_run import describe_inversion
    from .values import noise_of, read_known, read_noise, select

    session = Session.current()
    session.kept = lambda: _kept(output)
    check_target(output)
    text = config_text(output)
    inverter = load_inverter(model)
    spectra = open_cube(require_spectra(cube), variable=variable, reader=reader)
    if include_bad_bands:
        spectra = spectra.drop_vars("good", errors="ignore")
    spectra = select(spectra, bands, exclude, good_only=False, negative=negative, drop=False, band_dim=band_dim)
    options |= {"outputs": outputs, "band_dim": band_dim, "rechunk": "auto"}
    given = {"noise": noise_of(read_noise(noise), spectra, None, band_dim), "known": read_known(known)}
    lookup = read_lookup(cube) if orthorectify else None
    maps = inverter.invert(spectra, **given, **options)
    if lookup is not None:
        maps = to_grid(maps, lookup)
    if dry_run:
        click.echo(describe_inversion(inverter, spectra, maps, given, options, output, compression))
        return
    with cluster(scheduler), block_progress(session) as progress:
        save_maps(
            *(maps, output),
            resume=resume,
            progress=progress,
            compression=compression,
            history=session.command_line,
        )
    write_config(text, output)
    click.echo(f"wrote {output}")


@click.command(cls=Command)
@click.argument("maps", type=FILE)
@click.argument("swath", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Maps to write (.nc, .zarr or .tif).")
@COMPRESSION
def orthorectify(maps: Path, swath: Path, output: Path, compression: int) -> None:
    """Resample MAPS of a swath to the grid of a map, by the lookup table in SWATH, the file they were made from.

    \b
    specinvert orthorectify maps.nc EMIT_L2A_RFL.nc -o map.tif
    """
    from ..io.atomic import check_target
    from ..io.orthorectify import orthorectify as to_grid
    from ..io.tables import open_dataset
    from ..io.writers import save_maps

    check_target(output)
    session = Session.current()
    data = to_grid(open_dataset(maps), swath)
    with block_progress(session) as progress:
        save_maps(data, output, progress=progress, compression=compression, history=session.command_line)
    click.echo(f"wrote {output}")


def _kept(output: Path) -> str:
    from ..io.blocks import side_folder

    folder = side_folder(output)
    count = len(list(folder.glob("block-*"))) if folder.exists() else 0
    if not count:
        return f"{output} was not written, and no block was finished"
    blocks = "1 finished block is" if count == 1 else f"{count} finished blocks are"
    return f"{output} was not written; {blocks} kept, run the same command with --resume to go on"
