"""Manners of the real command: stopping and going on, silence, plain output, files kept from harm, full disks."""

import contextlib
import logging
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import click.testing
import dask
import numpy as np
import pytest
import xarray as xr

from commands import QUICK, run, succeed
from forked import BLOCK, MAIN, PATIENCE, Command, Starter
from labelled import make_cube, make_training, make_truth
from specinvert import load_inverter, save_maps
from specinvert.cli import main
from specinvert.cubes.outputs import OUTPUTS
from specinvert.scores.comparison import DEFAULT_METHODS, SCORES

SLOW_BLOCKS = f"""
import time
from specinvert.cubes.engine import BlockInverter
call = BlockInverter.__call__
BlockInverter.__call__ = lambda *given, **options: (time.sleep(0.2), call(*given, **options))[1]
{MAIN}
"""
SLOW_EM = f"""
import time
from specinvert.gllim.em.em import Problem
step = Problem.maximization
Problem.maximization = lambda *given: (time.sleep(0.05), step(*given))[1]
{MAIN}
"""
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training set, scene with truth, the scene in 30 blocks, and a model."""
    folder = tmp_path_factory.mktemp("manners")
    make_training().to_netcdf(folder / "training.nc")
    scene = make_truth().assign(reflectance=make_cube())
    save_maps(scene, folder / "scene.nc")
    scene[["reflectance"]].chunk({"y": 1, "x": 1}).to_zarr(folder / "blocks.zarr", consolidated=False)
    succeed("train", folder / "training.nc", "-o", folder / "model.nc", *QUICK)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A fresh copy of what was made."""
    return Path(shutil.copytree(made, tmp_path / "work"))


def stopped(process: Command, number: signal.Signals, ready: Callable[[], bool]) -> str:
    """What a command says on stderr that is stopped as soon as it is ready."""
    deadline = time.monotonic() + PATIENCE
    while not ready() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate()
    assert process.returncode == CODES[number], err
    assert out == ""
    assert "Traceback" not in err
    return err.splitlines()[-1]


@pytest.mark.stops
def test_an_inversion_that_ctrl_c_stops_keeps_blocks_and_goes_on_to_the_same_maps(
    starter: Starter, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["invert", "model.nc", "blocks.zarr", "-o", "maps.nc"]
    side = folder / ".maps.nc.blocks"
    last = stopped(
        Command(starter, SLOW_BLOCKS, folder, *arguments),
        signal.SIGINT,
        lambda: side.exists() and len(list(side.glob("block-*"))) > 1,
    )
    assert re.fullmatch(r"Interrupted: maps.nc was not written; \d+ finished blocks are kept, .* --resume .*", last)
    assert not list(folder.glob("maps*"))
    monkeypatch.chdir(folder)
    with dask.config.set({"array.chunk-size": BLOCK}):
        succeed(*arguments, "--resume")
        succeed("invert", "model.nc", "blocks.zarr", "-o", "whole.nc")
    with xr.open_dataset(folder / "maps.nc") as one, xr.open_dataset(folder / "whole.nc") as other:
        xr.testing.assert_equal(one, other)
    assert not side.exists()


@pytest.mark.stops
def test_a_training_that_sigterm_stops_goes_on_to_the_same_model(starter: Starter, folder: Path) -> None:
    arguments = [
        "train",
        "training.nc",
        "-o",
        "new.nc",
        "--components",
        "3",
        "--latent",
        "0",
        "--max-iter",
        "200",
        "--tol",
        "0",
    ]
    kept = folder / "state.nc"
    process = Command(starter, SLOW_EM, folder, *arguments, "--checkpoint", "state.nc")
    last = stopped(process, signal.SIGTERM, kept.exists)
    assert last == (
        "Interrupted: no model was written; state.nc keeps the state of EM, run the same command again to go on"
    )
    assert not list(folder.glob("new*"))
    whole = [folder / "training.nc", "-o", folder / "whole.nc", *arguments[4:]]
    resumed = [folder / "training.nc", "-o", folder / "new.nc", *arguments[4:], "--checkpoint", kept]
    assert run("train", *resumed).exit_code == run("train", *whole).exit_code == 0
    assert load_inverter(folder / "new.nc").model_id == load_inverter(folder / "whole.nc").model_id
    assert not kept.exists()


def test_quiet_is_silent_verbose_is_not_and_neither_sends_control_characters(starter: Starter, folder: Path) -> None:
    arguments = ["train", "training.nc", "-o", "new.nc", "--components", "3", "--latent", "0", "--max-iter", "3"]
    quiet, verbose = (Command(starter, MAIN, folder, *arguments, option) for option in ("-q", "-vv"))
    _, silent = quiet.communicate()
    out, told = verbose.communicate()
    assert silent == ""
    assert "EM, L_w = 0: iteration 3 of 3" in told
    assert "Warning: EM did not converge" in told
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out + told)


def test_a_terminal_gets_progress_without_colours(starter: Starter, folder: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["invert", "model.nc", "blocks.zarr", "-o", "maps.nc"]
    process = Command(starter, MAIN, folder, *arguments, err=os.ttyname(theirs))
    process.communicate()
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the end, on Linux
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.returncode == 0
    assert b"block 30 of 30" in shown
    assert b"\x1b" not in shown


def test_a_full_disk_is_one_line_and_leaves_nothing(starter: Starter, folder: Path) -> None:
    before = listing_of_files(folder)
    process = Command(starter, MAIN, folder, "invert", "model.nc", "blocks.zarr", "-o", "maps.nc", most_bytes=100)
    out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert re.fullmatch(r"Error: .*(no space is left|File too large).*\n", err)
    assert listing_of_files(folder) == before


def test_a_geotiff_that_a_limit_cuts_short_is_not_published_and_the_earlier_map_stays(
    starter: Starter, folder: Path
) -> None:
    arguments = ["invert", "model.nc", "blocks.zarr", "-o", "maps.tif"]
    Command(starter, MAIN, folder, *arguments).communicate()
    earlier = (folder / "maps.tif").read_bytes()
    process = Command(starter, MAIN, folder, *arguments, most_bytes=100_000)
    out, err = process.communicate()
    assert (process.returncode, out) == (1, "")
    assert re.search(r"Error: .*maps(_flag)?.tif: not written whole .*no space is left, or a quota or a limit", err)
    assert (folder / "maps.tif").read_bytes() == earlier


def listing_of_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


OVER = {
    "the cube": ["invert", "model.nc", "scene.nc", "-o", "./scene.nc"],
    "the model": ["invert", "model.nc", "scene.nc", "-o", "model.nc"],
    "the store": ["invert", "model.nc", "blocks.zarr", "-o", "blocks.zarr"],
    "the training set": ["train", "training.nc", "-o", "training.nc", *QUICK],
    "the sensor": ["resample", "training.nc", "scene.nc", "-o", "scene.nc"],
    "the test set": ["evaluate", "model.nc", "training.nc", "-o", "training.nc"],
    "a model to rank": ["rank", "scene.nc", "model.nc", "--plot", "model.nc"],
    "a known map": ["invert", "model.nc", "blocks.zarr", "-o", "scene.nc", "--known", "water=scene.nc"],
    "a table of noise": ["invert", "model.nc", "scene.nc", "-o", "noise.nc", "--noise", "noise.nc"],
    "what is selected from": ["select", "training.nc", "--model", "training.nc"],
    "the checkpoint": ["train", "training.nc", "-o", "new.nc", "--checkpoint", "new.nc", *QUICK],
    "a pipe": ["train", "training.nc", "-o", "pipe.nc", *QUICK],
}


@pytest.mark.parametrize("case", OVER)
def test_no_command_writes_over_what_it_reads(folder: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    xr.Dataset({"noise": 0.01}).to_netcdf(folder / "noise.nc")
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in listing_of_files(folder)}
    os.mkfifo(folder / "pipe.nc")
    result = run(*OVER[case])
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert re.search(r"is read by this command|is to be written twice|is a device or a pipe", result.stderr)
    (folder / "pipe.nc").unlink()
    assert {path: path.read_bytes() for path in listing_of_files(folder)} == before


def test_a_known_file_and_a_result_of_other_names_are_no_conflict(folder: Path) -> None:
    succeed("invert", folder / "model.nc", folder / "scene.nc", "-o", folder / "maps.nc", "--known", "water=0.2")
    succeed("invert", folder / "model.nc", folder / "scene.nc", "-o", folder / "maps.nc")  # its own earlier result


WRONG: dict[str, tuple[list[str], str]] = {
    "a model for a cube": (["invert", "model.nc", "model.nc", "-o", "new.nc"], "a trained model, where spectra are"),
    "a model for a training set": (["train", "model.nc", "-o", "new.nc"], "a trained model, where spectra are"),
    "a model for a test set": (["evaluate", "model.nc", "model.nc"], "check the order of the arguments"),
    "a Zarr store for a model": (["train", "training.nc", "-o", "new.zarr"], "a name that ends in .nc"),
    "bands without an option's name": (
        ["invert", "model.nc", "scene.nc", "-o", "new.nc", "--variable", "water"],
        "pass --band-dim or",
    ),
    "an empty table of noise": (
        ["invert", "model.nc", "scene.nc", "-o", "new.nc", "--noise", "e.csv"],
        "e.csv: the first line",
    ),
    "noise that is text": (["train", "training.nc", "-o", "new.nc", "--noise", "text.nc"], "text.nc: 'noise' must be"),
    "noise of no name": (["train", "training.nc", "-o", "new.nc", "--noise", ""], "neither a number nor a file"),
    "a nuisance without its value": (
        ["train", "training.nc", "-o", "new.nc", "--nuisance", "discrepancy=0.1"],
        "length_scale is missing, write discrepancy=0.1,length_scale=VALUE",
    ),
    "a nuisance of a range": (["train", "training.nc", "-o", "new.nc", "--nuisance", "gain=1:2"], "gain=1:2"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_the_words_of_the_command_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    arguments, said = WRONG[case]
    (folder / "e.csv").write_text("")
    xr.Dataset({"noise": ("band", ["a", "b"])}).to_netcdf(folder / "text.nc")
    monkeypatch.chdir(folder)
    before = listing_of_files(folder)
    result = run(*arguments)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert said in line
    assert listing_of_files(folder) == before


def test_a_switch_of_a_nuisance_can_be_off(made: Path, tmp_path: Path) -> None:
    def model(value: str) -> str:
        nuisance = f"discrepancy=0.1,length_scale=80{value}"
        succeed("train", made / "training.nc", "-o", tmp_path / "m.nc", *QUICK, "--nuisance", nuisance)
        return load_inverter(tmp_path / "m.nc").model_id

    assert model(",relative=false") == model("")
    assert model(",relative=true") != model("")


@pytest.mark.parametrize(("key", "meant"), [("Outputs", "outputs"), ("nois", "noise"), ("band-dim", "band_dim")])
def test_an_unknown_key_of_the_settings_is_told_the_nearest(made: Path, tmp_path: Path, key: str, meant: str) -> None:
    (tmp_path / "run.toml").write_text(f'[invert]\n{key} = "mean"\n')
    result = run("invert", "--config", tmp_path / "run.toml", made / "model.nc", made / "scene.nc", "-o", "m.nc")
    assert result.exit_code == 1
    assert f"unknown key {key!r} in [invert]; did you mean {meant!r}?" in result.stderr


def test_settings_with_files_give_the_same_from_a_folder_that_was_moved(folder: Path, monkeypatch: Any) -> None:
    xr.Dataset({"water": make_truth()["water"]}).to_netcdf(folder / "water.nc")
    wavelengths = np.sort(make_cube()["wavelength"].values)
    rows = "".join(f"{w},{0.01 + 1e-5 * w}\n" for w in wavelengths)
    (folder / "noise.csv").write_text(f"wavelength,noise\n{rows}")
    monkeypatch.chdir(folder)
    options = ["--noise", "noise.csv", "--known", "water=water.nc", "--bands", "400-1250", "--exclude", "600-720"]
    options += ["--outputs", "mean,q05,flag", "--compression", "3", "--negative", "nan", "--min-valid-bands", "2"]
    succeed("invert", "model.nc", "scene.nc", "-o", "a.nc", *options)
    moved = folder.rename(folder.with_name("moved"))
    monkeypatch.chdir("/")
    succeed("invert", "--config", moved / "a.nc.toml", "-o", moved / "b.nc")
    with xr.open_dataset(moved / "a.nc") as one, xr.open_dataset(moved / "b.nc") as other:
        xr.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_dry_run_tells_the_size_that_is_written(made: Path, tmp_path: Path) -> None:
    training = [made / "training.nc", "-o", tmp_path / "new.nc", "--components", 5, "--max-iter", 4, "--tol", 0]
    told = succeed("train", *training, "--sigma", "full", "--dry-run")
    run("train", *training, "--sigma", "full")
    size = re.search(r"about ([\d.]+) kB$", told, re.MULTILINE)
    assert size is not None
    assert float(size[1]) * 1e3 == pytest.approx((tmp_path / "new.nc").stat().st_size, rel=0.5)


@pytest.mark.parametrize(("shell", "part"), [("bash", "complete -o nosort"), ("zsh", "compdef"), ("fish", "complete ")])
def test_shells_get_a_script_of_completion(shell: str, part: str) -> None:
    installed = str(Path(sys.executable).parent / "specinvert")
    environment = os.environ | {"_SPECINVERT_COMPLETE": f"{shell}_source"}
    done = subprocess.run([installed], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert part in done.stdout
    assert "_SPECINVERT_COMPLETE" in done.stdout


def test_every_option_says_in_a_sentence_what_it_does() -> None:
    options = [
        (name, param)
        for name, found in main.commands.items()
        for param in found.params
        if isinstance(param, click.Option)
    ]
    assert len(options) > 100
    short = [f"{name} {param.opts[-1]}" for name, param in options if len((param.help or "").split()) < 2]
    ends = [f"{n} {p.opts[-1]}" for n, p in options if not re.search(r"\.(  \[.*\])?$", p.help or "")]
    assert short + ends == []


def help_of(command: str, option: str) -> str:
    (found,) = (param for param in main.commands[command].params if option in param.opts)
    assert isinstance(found, click.Option)
    return found.help or ""


def test_help_names_the_outputs_methods_and_scores_that_there_are() -> None:
    outputs = set(re.findall(r"\w+", help_of("invert", "--outputs").partition(":")[2].partition(";")[0]))
    assert outputs == {*OUTPUTS, "q05", "ci90", "hdi90", "draws100", "modes3"}
    assert f"[default: {', '.join(DEFAULT_METHODS)}]" in help_of("compare", "--methods")
    assert ", ".join(SCORES) in help_of("compare", "--score")


def test_the_list_of_commands_has_whole_sentences_at_eighty_columns() -> None:
    listed = click.testing.CliRunner().invoke(main, ["--help"], terminal_width=80).stdout.partition("Commands:\n")[2]
    lines = listed.splitlines()
    assert [line.split()[0] for line in lines] == sorted(main.commands)
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize("option", ["-q", "-v", "-vv"])
def test_a_run_within_python_leaves_the_level_of_the_package_s_loggers(option: str) -> None:
    logger = logging.getLogger("specinvert")
    before = logger.level
    assert run(option, "info", "nothing.nc").exit_code == 1
    assert logger.level == before
