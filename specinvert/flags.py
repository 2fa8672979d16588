"""Quality flags: bits and names of those of maps, those that a file tells, and the share of pixels that has each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr

FLAG_VARIABLE = "quality_flag"
FLAG_NAME = "flag_name"
"""The dimension of what is known of each flag."""
NODATA, PARTIAL_BANDS, OUT_OF_DOMAIN, BELOW_RANGE, ABOVE_RANGE, MULTIMODAL, PRIOR_ANSWERS = 1, 2, 4, 8, 16, 32, 64
FLAGS = {
    NODATA: "nodata",
    PARTIAL_BANDS: "partial_bands",
    OUT_OF_DOMAIN: "out_of_domain",
    BELOW_RANGE: "below_training_range",
    ABOVE_RANGE: "above_training_range",
    MULTIMODAL: "multimodal",
    PRIOR_ANSWERS: "prior_answers",
}
"""Names of the bits of maps."""
LEAST_SHARE = 0.25
"""The prior answers where a spectrum tells less of a parameter than this share of what spectra like training do."""
LEAST_TYPICAL = 0.5
"""Nats that these tell of it in the median, below which it is hidden from all and no spectrum is singled out."""


@dataclass(frozen=True)
class Flag:
    """One bit of a flag variable, or several, and its name."""

    mask: int
    name: str

    @property
    def title(self) -> str:
        """The name in words."""
        return self.name.replace("_", " ")


def read_flags(flags: xr.DataArray) -> list[Flag]:
    """The flags that the CF attributes `flag_masks` and `flag_meanings` name; without them bits 1 to 128."""
    masks = [int(mask) for mask in np.atleast_1d(flags.attrs.get("flag_masks", []))]
    names = str(flags.attrs.get("flag_meanings", "")).split()
    if masks and len(masks) == len(names):
        return [Flag(mask, name) for mask, name in zip(masks, names, strict=True)]
    return [Flag(1 << bit, f"bit {1 << bit}") for bit in range(8)]


def flag_shares(flags: xr.DataArray) -> xr.DataArray:
    """Share of pixels (flag_name,) without any flag ("none", first) and with each; lazy where the flags are."""
    bits = flag_bits(flags)
    named = read_flags(flags)
    raised = [(bits & flag.mask) != 0 for flag in named]
    none = (bits & sum(flag.mask for flag in named)) == 0
    shares = xr.concat([where.mean() for where in (none, *raised)], dim=FLAG_NAME)
    return shares.drop_vars(list(shares.coords)).assign_coords({FLAG_NAME: ["none", *(flag.name for flag in named)]})


def out_of_domain(flags: xr.DataArray) -> tuple[int, int]:
    """How many pixels of maps are out of the domain of training, and how many have data."""
    bits = flag_bits(flags)
    there = (bits & NODATA) == 0
    counts = xr.concat([(there & ((bits & OUT_OF_DOMAIN) != 0)).sum(), there.sum()], dim="count").values
    return int(counts[0]), int(counts[1])


def flag_bits(flags: xr.DataArray) -> xr.DataArray:
    """The flags as integers without coordinates; NaN, as a masked file gives, counts as no flag."""
    bare = flags.reset_coords(drop=True).drop_vars(list(flags.coords), errors="ignore")
    return (bare.fillna(0) if bare.dtype.kind == "f" else bare).astype(np.int64)


def flag_attrs() -> dict[str, object]:
    """CF attributes of quality flags, without a name."""
    return {
        "standard_name": "quality_flag",
        "flag_masks": np.array(list(FLAGS), dtype=np.uint8),
        "flag_meanings": " ".join(FLAGS.values()),
    }
