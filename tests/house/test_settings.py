"""A setting is declared once: signatures, checks, docstrings, commands and model files have it from there."""

import inspect
from dataclasses import fields
from typing import Any

import click
import numpy as np
import pytest
from dask.base import tokenize
from sklearn.base import clone

from specinvert import GLLiMInverter
from specinvert.cli import main
from specinvert.cli.options import GRID, OF_ONE_FIT, OFFERED
from specinvert.gllim import Constraints, GLLiM
from specinvert.gllim.em import Settings
from specinvert.gllim.model.constraints import KINDS, STRUCTURES
from specinvert.inverter.fit import stored_settings
from specinvert.model_selection.select import _TAKEN
from specinvert.settings import (
    GLLiMSettings,
    InverterSettings,
    check_settings,
    documented,
    settings_of,
)

OWN = {"fixed": ((), None)}
"""What a class says of a setting in its own words: the names of the parts that are fixed."""
FACES = [(GLLiM, GLLiMSettings), (Settings, GLLiMSettings), (GLLiMInverter, InverterSettings)]


def options(command: str) -> dict[str, click.Option]:
    return {
        param.opts[0]: param
        for param in main.commands[command].params
        if isinstance(param, click.Option) and param.opts[0].startswith("--")
    }


@pytest.mark.parametrize(("face", "declared"), FACES, ids=lambda kind: kind.__name__)
def test_signatures_have_the_settings_with_their_defaults(face: type, declared: type) -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(face).parameters.items()}
    assert defaults == {name: one.default for name, one in settings_of(declared).items()}
    assert [name for name, p in inspect.signature(face).parameters.items() if p.kind is not p.KEYWORD_ONLY] == [
        "n_components",
        "n_latent",
    ]


def test_both_faces_have_the_same_settings_but_for_those_that_an_inverter_finds() -> None:
    arrays, labelled = settings_of(GLLiMSettings), settings_of(InverterSettings)
    shared = set(arrays) & set(labelled)
    assert len(shared) > 15
    found = {"n_components", "n_latent", "sigma", "shrinkage"}
    assert {name for name in shared if arrays[name] != labelled[name]} == found


@pytest.mark.parametrize("face", [GLLiM, GLLiMInverter])
def test_docstrings_say_what_every_setting_does(face: type) -> None:
    assert "{settings}" not in (face.__doc__ or "")
    said = " ".join((face.__doc__ or "").split())
    assert [name for name, one in settings_of(face).items() if f"{name} : {one.text}" not in said] == []


def test_every_setting_accepts_its_default_and_is_told_in_a_sentence() -> None:
    for kind in (GLLiMSettings, InverterSettings):
        settings = settings_of(kind)
        check_settings({name: one.default for name, one in settings.items()}, kind)
        assert [name for name, one in settings.items() if not (one.help.endswith(".") and one.text.endswith("."))] == []


def test_arrays_are_not_fitted_with_settings_that_are_yet_to_be_found() -> None:
    for name in ("n_components", "n_latent", "sigma", "shrinkage"):
        with pytest.raises(ValueError, match=f"{name}='auto'"):
            GLLiM(**{name: "auto"}).fit(np.eye(4), np.arange(4.0))


def test_constraints_and_scikit_learn_know_the_same_settings() -> None:
    defaults = {one.name: (one.default, settings_of(GLLiMSettings)[one.name].default) for one in fields(Constraints)}
    assert {name: both for name, both in defaults.items() if both[0] != both[1]} == OWN
    assert clone(GLLiM(3)).get_params() == {name: one.default for name, one in settings_of(GLLiM).items()} | {
        "n_components": 3
    }


def test_the_structures_that_settings_name_are_those_there_are() -> None:
    settings = settings_of(GLLiMSettings)
    assert set(settings["sigma"].accepted.names) == set(KINDS)
    assert set(settings["gamma"].accepted.names) == set(STRUCTURES)


@pytest.mark.parametrize("command", ["train", "select"])
def test_commands_have_the_options_of_settings(command: str) -> None:
    there = options(command)
    for one in (OFFERED if command == "train" else OF_ONE_FIT).values():
        option = there[one.option]
        assert option.default == one.default
        assert option.help == one.help
        if one.accepted.kind is bool:
            assert option.secondary_opts == [one.option.replace("--", "--no-", 1)]
        if isinstance(option.type, click.Choice):
            assert set(option.type.choices) - {"none"} == set(one.accepted.names)


def test_select_leaves_out_the_settings_that_a_grid_has() -> None:
    assert set(GRID) == {"n_components", "n_latent", *_TAKEN}
    own = {"--config", "--ensemble", "--ensemble-weights", "--max-latent", "--dry-run", "--search-seconds", "--assess"}
    assert set(options("train")) - set(options("select")) == own


def test_model_files_keep_every_setting_but_the_transforms_which_they_keep_apart() -> None:
    expected = {name: one.default for name, one in settings_of(InverterSettings).items() if name != "transforms"}
    inverter = GLLiMInverter(7, "bic", max_latent=(1, 2), transforms={"lai": "log"})
    assert stored_settings(inverter) == expected | {"n_components": 7, "n_latent": "bic", "max_latent": [1, 2]}


def test_a_later_setting_changes_the_identity_only_where_it_is_not_at_its_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings(3, init="gmm")
    before = settings.identity
    assert before.startswith("Settings(n_components=3, n_latent=0, max_latent=10, constraints=Constraints(sigma='iso'")
    assert before.endswith("fixed=None, algorithm='general')")
    monkeypatch.setattr("specinvert.gllim.em.training.FIRST_SETTINGS", ("n_components",))
    assert settings.identity == "Settings(n_components=3, init='gmm')"


@pytest.mark.parametrize("kind", [GLLiM, GLLiMInverter])
def test_dask_tells_what_was_fitted_from_what_was_not(kind: type) -> None:
    one, same, other = kind(3), kind(3), kind(3)
    other.fitted_ = 1.0
    assert tokenize(one) == tokenize(same)
    assert tokenize(one) != tokenize(other)


@documented
class Documented(InverterSettings):
    """Of some settings.

    Parameters
    ----------
    {settings}
    """


def test_a_class_that_takes_settings_tells_them() -> None:
    assert (Documented.__doc__ or "").startswith("Of some settings.\n\nParameters\n----------\nn_components : K, the")


@pytest.mark.parametrize("value", [1.5, "x", None])
def test_what_is_declared_is_what_is_checked(value: Any) -> None:
    with pytest.raises(ValueError, match=r"n_init=.* must be an integer, 1 or more"):
        check_settings({"n_init": value, "other": None}, GLLiMSettings)
