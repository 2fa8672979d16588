"""The command line: ``specinvert demo | train | invert | evaluate | rank | info | plot``.

Exit codes: 0 done, 1 bad input (one line on stderr), 2 wrong usage. Everything heavy is imported when a command runs.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import __version__

if TYPE_CHECKING:
    import xarray as xr

    from .io.blocks import BlockProgress

FILE = click.Path(path_type=Path)
SCHEDULER = click.option("--scheduler", metavar="ADDRESS", help="dask cluster to work on, such as tcp://10.0.0.1:8786.")


class _Group(click.Group):
    """Turns what our functions raise on bad input into one line on stderr and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warnings.filterwarnings("ignore", category=PendingDeprecationWarning)
                warnings.filterwarnings("ignore", category=DeprecationWarning)
                result = super().invoke(ctx)
        except (ValueError, TypeError, OSError, ImportError) as error:
            raise click.ClickException(" ".join(str(error).split())) from error
        except RuntimeError as error:
            if not str(error).startswith("NetCDF"):
                raise
            raise click.ClickException(f"a netCDF file is damaged: {error}") from error
        for warning in caught:
            click.echo(f"Warning: {warning.message}", err=True)
        return result


class _Names(click.ParamType):  # type: ignore[type-arg]
    """Names separated by commas."""

    name = "NAMES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Split at commas."""
        if isinstance(value, list):
            return value
        return [name.strip() for name in str(value).split(",") if name.strip()]


class _Latent(click.ParamType):  # type: ignore[type-arg]
    """A number of latent dimensions, or bic."""

    name = "INTEGER|bic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """An integer, or "bic"."""
        if value == "bic":
            return "bic"
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither an integer nor 'bic'", param, ctx)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="specinvert")
def main() -> None:
    """Simulated spectra to a trained GLLiM model, image cubes to maps of physical parameters.

    \b
    specinvert demo
    specinvert train training.nc -o model.nc --parameters ice_fraction,grain_size --latent 1
    specinvert invert model.nc scene.tif -o maps.nc
    specinvert evaluate model.nc test.nc
    specinvert plot maps.nc -o maps.png
    """


@main.command()
@click.option("-o", "--output", type=FILE, default=Path("specinvert_demo"), show_default=True, help="Folder to write.")
def demo(output: Path) -> None:
    """Simulate, train, invert a scene and compare with the truth, in under a minute.

    \b
    specinvert demo -o my_demo
    """
    from .demo import SETTINGS, run_demo

    with _em_progress(SETTINGS["max_iter"]) as progress:
        result = run_demo(output, say=lambda text: click.echo(text, err=True), progress=progress)
    click.echo(f"\n{'NRMSE on the scene':24}{'L_w = 0':>10}{'L_w = 1':>10}")
    rows = zip(result.hybrid["parameter"].values, result.supervised["nrmse"], result.hybrid["nrmse"], strict=True)
    for name, supervised, hybrid in rows:
        click.echo(f"{name:24}{float(supervised):10.3f}{float(hybrid):10.3f}")
    click.echo("\nwrote " + ", ".join(str(path) for path in result.files))


@main.command()
@click.argument("training", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Model file to write (.nc).")
@click.option("--spectra", help="Variable that holds the spectra.  [default: the only one with a band dimension]")
@click.option("--parameters", type=_Names(), help="Parameters to retrieve.  [default: all]")
@click.option("--band-dim", help="Band dimension, where no wavelength coordinate tells.")
@click.option("--weights", help="Variable that holds the samples' weights.")
@click.option("--components", type=int, default=50, show_default=True, help="K, the number of affine maps.")
@click.option("--latent", type=_Latent(), default=0, show_default=True, help="L_w, latent dimensions.")
@click.option("--max-latent", type=int, default=10, show_default=True, help="Largest L_w that bic tries.")
@click.option("--sigma", type=click.Choice(["iso", "diag", "full"]), default="iso", show_default=True, help="Noise.")
@click.option("--tied-sigma", is_flag=True, help="One noise covariance for all components.")
@click.option("--gamma", type=click.Choice(["full", "diag", "iso"]), default="full", show_default=True)
@click.option("--tied-gamma", is_flag=True, help="One parameter covariance for all components.")
@click.option("--init", default="kmeans", show_default=True, help="kmeans, kmeans-joint, kmeans-spectra or gmm.")
@click.option("--n-init", type=int, default=1, show_default=True, help="Starts to try.")
@click.option("--max-iter", type=int, default=100, show_default=True)
@click.option("--tol", type=float, default=1e-4, show_default=True, help="Least gain of an iteration, nats a sample.")
@click.option("--reg-covar", type=float, default=1e-10, show_default=True, help="Least share of variance kept.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--drop-missing", is_flag=True, help="Leave out samples with NaN.")
@click.option("--checkpoint", type=FILE, help="File that keeps the state of EM, to go on from after a stop.")
@SCHEDULER
def train(
    training: Path,
    output: Path,
    spectra: str | None,
    parameters: list[str] | None,
    band_dim: str | None,
    weights: str | None,
    components: int,
    latent: int | str,
    seed: int,
    drop_missing: bool,
    checkpoint: Path | None,
    scheduler: str | None,
    **settings: Any,
) -> None:
    """Train a model on TRAINING, a netCDF file of simulated spectra and their parameters.

    \b
    specinvert train training.nc -o model.nc --parameters lai,cab --components 50 --latent 2
    specinvert train training.nc -o model.nc --latent bic --sigma diag
    """
    from .inverter import GLLiMInverter
    from .io.atomic import check_target
    from .io.tables import open_dataset

    check_target(output)
    inverter = GLLiMInverter(components, latent, random_state=seed, **settings)
    data = open_dataset(training)
    with _cluster(scheduler), _em_progress(settings["max_iter"]) as progress:
        inverter.fit(
            data,
            spectra,
            parameters,
            band_dim,
            weights,
            missing="drop" if drop_missing else "raise",
            rechunk="auto",
            checkpoint=checkpoint,
            progress=progress,
        )
    inverter.to_netcdf(output)
    click.echo(_describe_model(inverter))
    click.echo(f"wrote {output}")


@main.command()
@click.argument("model", type=FILE)
@click.argument("cube", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Maps to write (.nc or .tif).")
@click.option("--outputs", type=_Names(), default="mean,std,flag", show_default=True, help="What to compute.")
@click.option("--variable", help="Variable that holds the cube, in a netCDF file of several.")
@click.option("--band-dim", help="Band dimension, where no wavelength coordinate tells.")
@click.option("--tolerance", type=float, default=1.0, show_default=True, help="Band matching tolerance, nm.")
@click.option("--resume", is_flag=True, help="Go on with the blocks that a stopped run left behind.")
@click.option("--compression", type=click.IntRange(0, 9), default=0, show_default=True, help="Deflate level, netCDF.")
@SCHEDULER
def invert(
    model: Path,
    cube: Path,
    output: Path,
    outputs: list[str],
    variable: str | None,
    band_dim: str | None,
    tolerance: float,
    resume: bool,
    compression: int,
    scheduler: str | None,
) -> None:
    """Invert CUBE with MODEL into maps of parameters, uncertainties and flags, block by block.

    CUBE is netCDF, ENVI, GeoTIFF, or what else GDAL reads.

    \b
    specinvert invert model.nc scene.nc -o maps.nc
    specinvert invert model.nc scene.hdr -o maps.tif --outputs mean,std,flag
    specinvert invert model.nc scene.nc -o maps.nc --resume
    """
    from .inverter import load_inverter
    from .io.atomic import check_target
    from .io.open import open_cube
    from .io.writers import save_maps

    check_target(output)
    inverter = load_inverter(model)
    spectra = open_cube(cube, variable=variable)
    maps = inverter.invert(spectra, outputs=outputs, band_dim=band_dim, tolerance=tolerance, rechunk="auto")
    with _cluster(scheduler), _block_progress() as progress:
        save_maps(maps, output, resume=resume, progress=progress, compression=compression)
    click.echo(f"wrote {output}")


@main.command()
@click.argument("model", type=FILE)
@click.argument("test", type=FILE)
@click.option("-o", "--output", type=FILE, help="Table to write (.csv).")
@click.option("--band-dim", help="Band dimension, where no wavelength coordinate tells.")
@click.option("--tolerance", type=float, default=1.0, show_default=True, help="Band matching tolerance, nm.")
def evaluate(model: Path, test: Path, output: Path | None, band_dim: str | None, tolerance: float) -> None:
    """Compare MODEL's estimates with the true parameters in TEST, a netCDF file of spectra and parameters.

    \b
    specinvert evaluate model.nc test.nc -o errors.csv
    """
    from .diagnostics.metrics import format_table
    from .inverter import load_inverter
    from .io.atomic import atomic_path, check_target
    from .io.tables import open_dataset

    if output is not None:
        check_target(output)
    table = load_inverter(model).evaluate(open_dataset(test), band_dim=band_dim, tolerance=tolerance, rechunk="auto")
    click.echo(format_table(table))
    if output is not None:
        with atomic_path(output) as temporary:
            table.to_dataframe().to_csv(temporary)
        click.echo(f"wrote {output}")


@main.command()
@click.argument("spectra", type=FILE)
@click.argument("models", metavar="MODEL...", type=FILE, nargs=-1, required=True)
@click.option("-o", "--output", type=FILE, help="Table to write (.csv).")
@click.option("--plot", type=FILE, help="Figure to write (.png, .pdf, .svg).")
@click.option("--noise", type=float, help="Standard deviation beyond the noise of training, in units of the spectra.")
@click.option("--variable", help="Variable that holds the spectra, in a netCDF file of several.")
@click.option("--band-dim", help="Band dimension, where no wavelength coordinate tells.")
@click.option("--tolerance", type=float, default=1.0, show_default=True, help="Band matching tolerance, nm.")
def rank(
    spectra: Path,
    models: tuple[Path, ...],
    output: Path | None,
    plot: Path | None,
    variable: str | None,
    **options: Any,
) -> None:
    """Rank models by the density that they give to SPECTRA, which need no parameters.

    \b
    specinvert rank scene.nc narrow.nc wide.nc noisy.nc -o ranking.csv --plot ranking.png
    """
    from .diagnostics import ranking
    from .diagnostics.plots import save_figure
    from .diagnostics.ranking_plots import plot_ranking, require_figure
    from .inverter import load_inverter
    from .io.atomic import atomic_path, check_target
    from .io.open import open_cube

    for target in (output, plot):
        if target is not None:
            check_target(target)
    if plot is not None:
        require_figure(plot)
    names = ranking.model_names(models)
    inverters = {name: load_inverter(path) for name, path in zip(names, models, strict=True)}
    ranking.require_comparable({name: inverter.model_ for name, inverter in inverters.items()})
    cube = open_cube(spectra, variable=variable)
    maps = {n: i.invert(cube, outputs=["log_evidence"], rechunk="auto", **options) for n, i in inverters.items()}
    table = ranking.rank({name: of_model["log_evidence"] for name, of_model in maps.items()})
    if plot is not None:
        save_figure(plot_ranking(table), plot)
    if output is not None:
        with atomic_path(output) as temporary:
            table.to_dataframe().to_csv(temporary)
    click.echo(ranking.format_ranking(table))
    click.echo(f"compared on {int(table['n'][0])} of {table.attrs['n_spectra']} spectra. {ranking.CAVEAT}")
    for target in (output, plot):
        if target is not None:
            click.echo(f"wrote {target}")


@main.command()
@click.argument("file", type=FILE)
def info(file: Path) -> None:
    """Tell what FILE holds: a model, maps, a training set or an image cube.

    \b
    specinvert info model.nc
    """
    from .io.model import is_model

    if is_model(file):
        from .inverter import load_inverter

        click.echo(_describe_model(load_inverter(file)))
        return
    from .io.describe import describe_file

    click.echo(describe_file(file))


@main.command()
@click.argument("maps", type=FILE)
@click.option("-o", "--output", type=FILE, required=True, help="Figure to write (.png, .pdf, .svg).")
@click.option("--truth", type=FILE, help="netCDF file of true maps, drawn beside the estimates.")
@click.option("--parameters", type=_Names(), help="Parameters to draw.  [default: all]")
def plot(maps: Path, output: Path, truth: Path | None, parameters: list[str] | None) -> None:
    """Draw MAPS: each parameter with its uncertainty, and the flags.

    \b
    specinvert plot maps.nc -o maps.png --truth scene.nc
    """
    from .diagnostics.plots import plot_maps, save_figure
    from .io.atomic import check_target
    from .io.tables import open_dataset

    check_target(output)
    true: xr.Dataset | None = None if truth is None else open_dataset(truth)
    save_figure(plot_maps(open_dataset(maps), true, parameters), output)
    click.echo(f"wrote {output}")


def _describe_model(inverter: Any) -> str:
    model, theta = inverter.model_, inverter.parameters_
    wavelength = model.bands.wavelength
    span = "" if wavelength is None else f", {wavelength.min():g} to {wavelength.max():g} nm"
    state = "converged" if model.converged else "not converged"
    lines = [
        f"GLLiM model {inverter.model_id}",
        f"  bands       {theta.n_bands}{span}",
        f"  components  {theta.n_components}" + (f" ({model.n_removed} removed)" if model.n_removed else ""),
        f"  latent      {theta.n_latent}",
        f"  noise       {theta.constraints.sigma}{', tied' if theta.constraints.tied_sigma else ''}",
        f"  training    {model.n_samples} samples, {inverter.n_iter_} iterations, {state}",
        f"  BIC         {inverter.bic_:.6g}",
        "  parameters",
    ]
    for name, low, high in zip(model.names, model.low, model.high, strict=True):
        units = model.attrs[name].get("units", "")
        lines.append(f"    {name}: {low:g} to {high:g} {units if units != '1' else ''}".rstrip())
    return "\n".join(lines)


@contextmanager
def _em_progress(max_iter: int) -> Iterator[Callable[[str, int, float], None] | None]:
    """A bar for each EM run, on stderr where that is a terminal."""
    stream = sys.stderr
    if not stream.isatty():
        yield None
        return
    with ExitStack() as stack:
        bar: Any = None

        def progress(label: str, iteration: int, log_likelihood: float) -> None:
            nonlocal bar
            if iteration == 0:
                stack.close()
                bar = stack.enter_context(click.progressbar(length=max_iter, label=f"EM, {label}", file=stream))
            bar.update(1)

        yield progress


@contextmanager
def _block_progress() -> Iterator[Callable[[BlockProgress], None] | None]:
    """A bar over pixels with their rate and the time left, on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with ExitStack() as stack:
        bar: Any = None

        def progress(state: BlockProgress) -> None:
            nonlocal bar
            if bar is None:
                made = click.progressbar(length=state.n_pixels, label="inverting", file=sys.stderr)
                bar = stack.enter_context(made)
            bar.label = f"inverting, block {state.blocks} of {state.n_blocks}, {state.pixels_per_second:,.0f} pixels/s"
            bar.update(state.pixels - bar.pos)

        yield progress


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """A dask cluster to work on, where an address is given."""
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--scheduler needs dask's distributed: pip install 'specinvert[cluster]'") from None
    with Client(address, timeout="10s"):
        yield
