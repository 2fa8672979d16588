"""Attributes of the maps: set anew on every output, the cube's georeference restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray as xr

from .outputs import IN_SPECTRA_UNITS, UNITLESS, Output, describe, flag_attrs

CONVENTIONS = "CF-1.11"
CUBE_FILE = "cube_file"
"""Key of the encoding of maps that names the file of their cube."""
REFERENCES = (
    "Deleforge, A., Forbes, F. and Horaud, R. (2015): High-dimensional regression with Gaussian mixtures and "
    "partially-latent response variables. Statistics and Computing 25, 893-911, doi:10.1007/s11222-014-9461-5"
)


def grid_mapping_of(cube: xr.DataArray) -> str | None:
    """Name of the cube's grid mapping coordinate, as xarray or rioxarray keep it."""
    name = cube.encoding.get("grid_mapping") or cube.attrs.get("grid_mapping")
    if name is None and "spatial_ref" in cube.coords:
        name = "spatial_ref"
    return str(name) if name in cube.coords else None


def label_maps(
    maps: xr.Dataset,
    cube: xr.DataArray,
    declared: Sequence[Output],
    parameters: Sequence[str],
    attrs: Mapping[str, Mapping[str, str]],
    provenance: Mapping[str, str],
    spectra_units: str | None = None,
) -> xr.Dataset:
    """Give every variable its attributes and the cube's grid mapping; ``provenance`` goes on the Dataset.

    Where the cube was read from a file, the encoding tells which, so that the maps are not written over it.
    """
    mapping = grid_mapping_of(cube)
    for output in declared:
        variable = maps[output.name]
        variable.attrs = _attrs(output, parameters, attrs, declared, spectra_units)
        if mapping is not None:
            variable.encoding["grid_mapping"] = mapping
    used = {dim for output in declared for dim in output.core_dims}
    for dim in ("parameter", "parameter_2"):
        if dim in used:
            maps = maps.assign_coords({dim: list(parameters)})
    if "latent" in used and maps["latent"].ndim > 1:
        maps = maps.reset_coords("latent")  # xarray takes a variable named as one of its dimensions for a coordinate
    names = [_long_name(parameter, attrs) for parameter in parameters]
    title = f"Estimates of {', '.join(names)} from spectra" if names else "Latent dimensions of spectra"
    maps.attrs = {"Conventions": CONVENTIONS, "title": title, **provenance, "references": REFERENCES}
    if "source" in cube.encoding:
        maps.encoding[CUBE_FILE] = cube.encoding["source"]
    return maps


def _long_name(parameter: str, attrs: Mapping[str, Mapping[str, str]]) -> str:
    return attrs.get(parameter, {}).get("long_name", parameter.replace("_", " "))


def _attrs(
    output: Output,
    parameters: Sequence[str],
    attrs: Mapping[str, Mapping[str, str]],
    declared: Sequence[Output],
    spectra_units: str | None,
) -> dict[str, object]:
    if output.kind == "flag":
        return flag_attrs()
    if output.index is None:
        made: dict[str, object] = {"long_name": describe(output)}
        units = spectra_units if output.kind in IN_SPECTRA_UNITS else "1" if output.kind in UNITLESS else None
        return made if units is None else made | {"units": units}
    parameter = parameters[output.index]
    own = dict(attrs.get(parameter, {}))
    long_name = _long_name(parameter, attrs)
    if output.kind != "mean":
        made = {"long_name": describe(output, long_name)}
        if "units" in own:
            made["units"] = own["units"]
        if output.kind == "std" and "standard_name" in own:
            made["standard_name"] = f"{own['standard_name']} standard_error"
        return made
    made = {"long_name": long_name, **own}
    beside = [o.name for o in declared if o.index == output.index and o.kind != "mean"]
    linked = [*beside, *(["quality_flag"] if any(o.kind == "flag" for o in declared) else [])]
    if linked:
        made["ancillary_variables"] = " ".join(linked)
    return made
