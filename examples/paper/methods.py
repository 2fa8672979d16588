"""The methods of the paper's tables by the names that runs keep them under, and how their settings are chosen.

A name is "gllim-3" and so on for three latents, "jgmm", "sir-1", "sir-2", or "rvm kernel scale".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import numpy as np
from common import Record, Scores

from specinvert.baselines import KERNELS, make_method
from specinvert.baselines.methods import RVM_KERNELS, RVM_SCALES
from specinvert.baselines.rvm import SCALES
from specinvert.gllim import GLLiM

Kernel = tuple[str, float]
"""Of a relevance vector machine, and its scale."""
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

RVM_SEARCHES: dict[str, list[Kernel]] = {
    "all": [(kernel, scale) for kernel in KERNELS for scale in SCALES],
    "few": [(kernel, scale) for kernel in RVM_KERNELS for scale in RVM_SCALES],
}
"""Kernels and scales to choose from: the 140 of the paper, or 15."""


def rvm_name(kernel: Kernel) -> str:
    """The name of the relevance vector machine with a kernel and scale."""
    return f"rvm {kernel[0]} {kernel[1]:g}"


def unfitted(
    name: str,
    seed: int,
    gllim: Mapping[str, Any],
    jgmm: Mapping[str, Any],
    rvm: Mapping[str, Any] | None = None,
) -> Any:
    """The regressor of a name; ``gllim``, ``jgmm`` and ``rvm`` are settings beside those that the name tells."""
    latent = re.fullmatch(r"gllim-(\d+)", name)
    if latent:
        return GLLiM(n_latent=int(latent[1]), random_state=seed, **gllim)
    method, *kernel = name.split()
    options = dict({"jgmm": jgmm, "rvm": rvm or {}}.get(method, {}))
    if kernel:
        options |= {"kernel": kernel[0], "scale": float(kernel[1])}
    return make_method(method, seed, **options)


def best_kernel(losses: Mapping[Kernel, Sequence[Record]]) -> Kernel:
    """The kernel and scale of least average error among those that never failed."""
    scores = {choice: Scores.of(records) for choice, records in losses.items()}
    whole = {choice: found.average.mean() for choice, found in scores.items() if not found.failed}
    if not whole:
        raise ValueError(f"none of the {len(losses)} kernels could be fitted")
    return min(whole, key=whole.__getitem__)


def bic_records(fits: Mapping[int, Sequence[Record]]) -> tuple[list[Record], Counter[int]]:
    """For each repeat the record of least BIC, and how often each L_w was it; ``fits`` are those of every L_w."""
    picks = [min(fits, key=lambda n, r=r: fits[n][r].get("bic", np.inf)) for r in range(len(fits[min(fits)]))]
    return [fits[pick][r] for r, pick in enumerate(picks)], Counter(picks)


def methods_option(among: Sequence[str]) -> Decorator:
    """``--methods``, some of those with commas, given to the command as a list."""

    def read(context: click.Context, parameter: click.Parameter, text: str) -> list[str]:
        names = text.split(",")
        strange = [name for name in names if name not in among]
        if strange:
            raise click.BadParameter(f"{', '.join(strange)} not among {', '.join(among)}")
        return names

    default = ",".join(among)
    return click.option(
        "--methods", default=default, show_default=True, callback=read, help="Some of these, with commas."
    )


def search_option(default: str) -> Decorator:
    """``--rvm-search``, one of :data:`RVM_SEARCHES`, or the paper's kernel."""
    choices = click.Choice([*RVM_SEARCHES, "paper"])
    return click.option("--rvm-search", type=choices, default=default, help="Kernels to choose from.")
