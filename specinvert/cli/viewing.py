"""What ``view`` computes on a click: the spectra and conditions of the inversion, from its settings beside the maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .base import Session
from .config import config_path, read_config

_PASSED_ON = ("band_dim", "tolerance", "min_valid_bands", "noise_includes_training")


def spectra_and_conditions(
    maps: Path,
    cube: Path | None,
    model: Path | None,
    noise: str | None,
    known: Sequence[str],
    chosen: Sequence[str] = (),
) -> tuple[Any, dict[str, Any]]:
    """The cube as ``invert`` read it, None for none, and noise, known parameters and options for ``serve``.

    All of them at the entries that ``chosen`` names, where they have the dimension.

    Raises what opening a cube raises, and ValueError for ``noise`` or ``known`` without cube and model.
    """
    from ..io.open import open_cube
    from .values import each_array, noise_of, picked, read_known, read_noise, select

    if (noise is not None or known) and (cube is None or model is None):
        raise ValueError("--noise and --known are for the spectrum that is clicked: give CUBE and --model too")
    if cube is None:
        return None, {}
    settings = _settings(maps)
    options = {name: settings[name] for name in _PASSED_ON if name in settings}
    band_dim = options.get("band_dim")
    same = "cube" in settings and Path(settings["cube"]).absolute() == cube.absolute()
    reading = {name: settings.get(name) if same else None for name in ("variable", "reader")}
    spectra = open_cube(cube, **reading)
    if settings.get("include_bad_bands"):
        spectra = spectra.drop_vars("good", errors="ignore")
    ranges = settings.get("bands"), settings.get("exclude")
    negative = settings.get("negative", "keep")
    spectra = select(spectra, *ranges, good_only=False, negative=negative, drop=False, band_dim=band_dim)
    origin = "as given"
    if noise is None and not known:
        noise, known = settings.get("noise"), settings.get("known", ())
        origin = f"as {config_path(maps).name} says"
    else:
        options.pop("noise_includes_training", None)
    try:
        given = {"noise": noise_of(read_noise(noise), spectra, None, band_dim), "known": read_known(known)}
    except ValueError as error:
        raise ValueError(f"{error}; give --noise and --known, or correct {config_path(maps)}") from error
    given = each_array(given, lambda array: picked(array, chosen, all_of_them=False))
    return picked(spectra, chosen, all_of_them=False), {**given, **options, "origin": origin}


def _settings(maps: Path) -> dict[str, Any]:
    """The options of the inversion that made the maps, where their file is beside them and is one of ``invert``."""
    from .inversion import invert

    path = config_path(maps)
    if not path.exists():
        return {}
    try:
        return read_config(path, invert)
    except (ValueError, OSError) as error:
        Session.current().console.warn(f"{error}; a click is computed without these settings")
        return {}
