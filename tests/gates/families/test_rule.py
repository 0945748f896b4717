"""A rule is refused where no trial can move its figure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from weighbridge.figures.whole import rise, steps_off
from weighbridge.gates.families.levers import LEVERS
from weighbridge.gates.families.rule import ProgressRule, Rule

BOUND: dict[str, Any] = {"name": "r", "code": "c", "doc": "a figure", "must": ("at most",)}
NO_LEVER = "r has no lever, so no trial moves its figure; known: 'the last up', 'the last down', "


def test_a_rule_without_a_lever_is_refused_with_the_levers_that_there_are() -> None:
    with pytest.raises(ValueError, match=NO_LEVER):
        Rule(**BOUND, column="loss", figure=rise).kind()
    with pytest.raises(ValueError, match=NO_LEVER):
        ProgressRule(**BOUND, place="steps", figure=steps_off, unknown="u", levers=()).kind()


def test_an_unknown_lever_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=re.escape("there is no lever 'the last sideways'; known: 'the last up', ")):
        Rule(**BOUND, column="loss", figure=rise, levers=("the last up", "the last sideways")).kind()


def test_the_tutorial_of_a_plug_in_names_every_lever() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "tutorials" / "plugin.md"
    words = page.read_text("utf-8").split("Its levers", 1)[1].split("own_levers", 1)[0]
    assert re.findall(r"`([a-z ]+)`", words) == list(LEVERS)
