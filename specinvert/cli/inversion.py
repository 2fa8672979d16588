"""``invert`` and ``orthorectify``: from cubes to maps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..cubes import EXAMPLES, OUTPUTS
from ..flags import FLAG_VARIABLE, out_of_domain
from .base import Command, Session, require_spectra, working
from .options import (
    BAND_DIM,
    BANDS,
    CONFIG,
    DRY_RUN,
    EXCLUDE,
    FILE,
    KNOWN,
    NOISE,
    READER,
    SCHEDULER,
    TOLERANCE,
    VARIABLE,
    Names,
    config_text,
    take,
    write_config,
)
from .values import narrow, noise_of, read_known, read_noise

if TYPE_CHECKING:
    import xarray as xr

OUTPUT = click.option("-o", "--output", type=FILE, required=True, help="Maps to write (.nc, .zarr or .tif).")
RESUME = click.option("--resume", is_flag=True, help="Go on with the blocks that a stopped run left behind.")
COMPRESSION = click.option(
    "--compression", type=click.IntRange(0, 9), default=0, show_default=True, help="Deflate level of a netCDF file."
)


@dataclass(frozen=True)
class Writing:
    """How maps are written."""

    compression: int
    resume: bool
    scheduler: str | None = None

    def save(self, maps: xr.Dataset, output: Path, text: str) -> None:
        """Write maps block by block, and the ``text`` of the options beside them."""
        from ..io.writing import save_maps

        session = Session.current()
        with working(session, self.scheduler) as bars:
            save_maps(
                *(maps, output),
                resume=self.resume,
                progress=bars.blocks,
                compression=self.compression,
                history=session.command_line,
            )
        write_config(text, output)
        click.echo(f"wrote {output}")


@dataclass(frozen=True)
class CubeReading:
    """How spectra are read from the file of a cube; the defaults are those of the options."""

    variable: str | None = None
    reader: str | None = None
    band_dim: str | None = None
    bands: str | None = None
    exclude: str | None = None
    include_bad_bands: bool = False
    negative: str = "keep"

    def open(self, cube: Path) -> Any:
        """The spectra, those bands missing that are not to be used."""
        from ..io.reading import open_cube

        spectra = open_cube(cube, variable=self.variable, reader=self.reader)
        if self.include_bad_bands:
            spectra = spectra.drop_vars("good", errors="ignore")
        how = {"negative": self.negative, "band_dim": self.band_dim}
        return narrow(spectra, self.bands, self.exclude, good_only=False, drop=False, **how)


@click.command(cls=Command, short_help="Maps of parameters, uncertainties and flags from a cube.")
@click.argument("model", type=FILE)
@click.argument("cube", type=FILE)
@OUTPUT
@CONFIG
@click.option(
    "--outputs",
    type=Names(),
    default="estimate,std,flag",
    show_default=True,
    help=f"What to compute: {', '.join((*OUTPUTS, *EXAMPLES))}; any number for those in the names.",
)
@NOISE
@click.option(
    "--noise-includes-training/--no-noise-includes-training",
    help="--noise includes what training added, which is taken off it.",
)
@KNOWN
@VARIABLE
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
    help="What becomes of negative values: nan makes them missing, clip makes them 0.",
)
@click.option(
    "--min-valid-bands",
    type=int,
    help="Spectra with fewer valid bands are no data.  [default: a tenth of the bands, at least L_t + 1]",
)
@TOLERANCE
@click.option("--orthorectify/--no-orthorectify", help="Resample the maps of a swath by the lookup in CUBE.")
@COMPRESSION
@RESUME
@DRY_RUN
@SCHEDULER
def invert(model: Path, cube: Path, output: Path, orthorectify: bool, dry_run: bool, **options: Any) -> None:
    """Invert CUBE with MODEL into maps of parameters, uncertainties and flags, block by block.

    CUBE is a product of a known sensor, netCDF, Zarr, ENVI (image or spectral library), GeoTIFF, MATLAB, CSV, or what
    else GDAL reads. The options in effect are written to OUTPUT.toml, for --config.

    \b
    specinvert invert model.nc scene.nc -o maps.nc
    specinvert invert model.nc scene.hdr -o maps.tif --noise noise.csv --exclude 1350-1450,1800-1950
    specinvert invert model.nc scene.nc -o maps.nc --known incidence=30 --resume
    """
    from ..inverter import load_inverter
    from ..io.reading import orthorectify as to_grid
    from ..io.reading import read_lookup
    from .dry_run import describe_inversion

    text = _begin(output)
    reading, writing = take(CubeReading, options), take(Writing, options)
    inverter = load_inverter(model)
    spectra = reading.open(require_spectra(cube))
    noise, known = noise_of(read_noise(options["noise"]), spectra, None, reading.band_dim), read_known(options["known"])
    options |= {"noise": noise, "known": known, "band_dim": reading.band_dim, "rechunk": "auto"}
    lookup = read_lookup(cube) if orthorectify else None
    maps = inverter.invert(spectra, **options)
    if lookup is not None:
        maps = to_grid(maps, lookup)
    if dry_run:
        click.echo(describe_inversion(inverter, spectra, maps, options, output, writing.compression))
        return
    writing.save(maps, output, text)
    if FLAG_VARIABLE in maps:
        outside, there = out_of_domain(_written_flags(output))
        if outside > there / 2:
            Session.current().console.warn(
                f"{outside} of {there} pixels with data are out of the domain of training: no training spectrum is "
                "like theirs; compare the two, and their scales"
            )


def _written_flags(output: Path) -> xr.DataArray:
    from ..io.reading import open_cube
    from ..io.writing import flag_name

    if output.suffix.lower() in (".tif", ".tiff"):
        return open_cube(output.with_name(flag_name(output)))
    return open_cube(output, variable=FLAG_VARIABLE)


@click.command(cls=Command, short_help="Maps of a swath to the grid of a map.")
@click.argument("maps", type=FILE)
@click.argument("swath", type=FILE)
@OUTPUT
@CONFIG
@COMPRESSION
@RESUME
@DRY_RUN
def orthorectify(maps: Path, swath: Path, output: Path, compression: int, resume: bool, dry_run: bool) -> None:
    """Resample MAPS of a swath to the grid of a map, by the lookup table in SWATH, the file they were made from.

    The options in effect are written to OUTPUT.toml, for --config.

    \b
    specinvert orthorectify maps.nc EMIT_L2A_RFL.nc -o map.tif
    specinvert orthorectify maps.nc EMIT_L2A_RFL.nc -o map.nc --dry-run
    """
    from ..io.reading import in_blocks, open_dataset, read_lookup
    from ..io.reading import orthorectify as to_grid
    from .dry_run import describe_orthorectification

    text = _begin(output)
    lookup = read_lookup(swath)
    data = in_blocks(open_dataset(maps), lookup.dims)
    made = to_grid(data, lookup)
    if dry_run:
        click.echo(describe_orthorectification(data, lookup, made, output, compression))
        return
    Writing(compression, resume).save(made, output, text)


def _begin(output: Path) -> str:
    """Check that maps can be written, and prepare for a stop; the options in effect, as their file holds them."""
    from ..io import check_target

    Session.current().kept = lambda: _kept(output)
    check_target(output)
    return config_text(output)


def _kept(output: Path) -> str:
    from ..io.writing import side_folder

    folder = side_folder(output)
    count = len(list(folder.glob("block-*"))) if folder.exists() else 0
    if not count:
        return f"{output} was not written, and no block was finished"
    blocks = "1 finished block is" if count == 1 else f"{count} finished blocks are"
    return f"{output} was not written; {blocks} kept, run the same command with --resume to go on"
