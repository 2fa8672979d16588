"""Commands run in this process, and what they leave."""

from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from specinvert.cli import main

QUICK = ["--components", "3", "--latent", "0", "--max-iter", "4", "--tol", "0"]


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeed(*arguments: Any) -> str:
    """Run a command that must succeed without a word on stderr; returns its output."""
    result = run(*arguments)
    assert (result.exit_code, result.stderr, result.exception) == (0, "", None)
    return result.stdout


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
