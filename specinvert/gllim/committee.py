"""A committee: several fits of one training set from starts of their own, whose posteriors are averaged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from .training import Settings, Training

ALTERNATING = ("kmeans", "kmeans-joint")
"""Starts that members take in turn where the first of them is asked for."""


def member_settings(settings: Settings, n_members: int) -> list[Settings]:
    """Settings of each member: distinct seeds, k-means on the parameters and on the joint vector in turn.

    Raises ValueError where all members would be the same fit.
    """
    if n_members == 1:
        return [settings]
    if not isinstance(settings.init, str):
        raise ValueError(f"n_ensemble={n_members} members need starts of their own: init must be a name, not a model")
    random = check_random_state(settings.random_state)
    starts = ALTERNATING if settings.init == ALTERNATING[0] else (settings.init,)
    return [
        replace(settings, init=starts[m % len(starts)], random_state=int(random.randint(np.iinfo(np.int32).max)))
        for m in range(n_members)
    ]


def train_members(
    settings: Sequence[Settings],
    fit: Callable[[Settings, int], Training],
    together: Callable[[Sequence[Callable[[], Training]]], Sequence[Training]],
) -> list[Training]:
    """Fit all members; the first chooses L_w, and groups of bands, for all; the others run ``together``."""
    first = fit(settings[0], 0)
    theta = first.fit.parameters
    chosen: dict[str, Any] = {"n_latent": theta.n_latent, "constraints": theta.constraints}
    rest = [(replace(own, **chosen), m) for m, own in enumerate(settings) if m > 0]
    return [first, *together([lambda own=own, m=m: fit(own, m) for own, m in rest])]  # type: ignore[misc]
