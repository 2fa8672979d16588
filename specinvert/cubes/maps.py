"""Attributes of the maps: set anew on every output, the cube's georeference restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xarray as xr

from .outputs import Output, flag_attrs

CONVENTIONS = "CF-1.11"


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
) -> xr.Dataset:
    """Give every variable its attributes and the cube's grid mapping; ``provenance`` goes on the Dataset."""
    names = [output.name for output in declared]
    mapping = grid_mapping_of(cube)
    for output in declared:
        variable = maps[output.name]
        variable.attrs = _attrs(output, parameters, attrs, names)
        if mapping is not None:
            variable.encoding["grid_mapping"] = mapping
    used = {dim for output in declared for dim in output.core_dims}
    for dim in ("parameter", "parameter_2"):
        if dim in used:
            maps = maps.assign_coords({dim: list(parameters)})
    if "latent" in maps.coords and maps["latent"].ndim > 1:
        maps = maps.reset_coords("latent")  # xarray takes a variable named as one of its dimensions for a coordinate
    maps.attrs = {"Conventions": CONVENTIONS, **provenance}
    return maps


def _attrs(
    output: Output, parameters: Sequence[str], attrs: Mapping[str, Mapping[str, str]], names: Sequence[str]
) -> dict[str, object]:
    if output.kind == "flag":
        return flag_attrs()
    if output.kind == "log_evidence":
        return {"long_name": "log density of the spectrum under the model", "units": "1"}
    if output.kind == "latent":
        return {"long_name": "posterior mean of the latent dimensions", "units": "1"}
    if output.kind == "cov":
        return {"long_name": "posterior covariance of the parameters"}
    assert output.index is not None
    parameter = parameters[output.index]
    own = dict(attrs.get(parameter, {}))
    long_name = own.get("long_name", parameter.replace("_", " "))
    if output.kind == "std":
        made: dict[str, object] = {"long_name": f"standard deviation of {long_name}"}
        if "units" in own:
            made["units"] = own["units"]
        if "standard_name" in own:
            made["standard_name"] = f"{own['standard_name']} standard_error"
        return made
    made = {"long_name": long_name, **own}
    linked = [name for name in (f"{parameter}_std", "quality_flag") if name in names]
    if linked:
        made["ancillary_variables"] = " ".join(linked)
    return made
