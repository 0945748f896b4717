"""Patterns of others: those that people write are tried, those that may take for ever are not."""

import pytest

from weighbridge.views.module_patterns import is_quick

USUAL = (
    *("q_proj", "lm_head", "model.layers.0.self_attn", r"^model\.layers\.\d+\.mlp\.gate$", "[qk]_proj", "(q|k|v)_proj"),
    *(r".*\.0\.q_proj", r".*mlp\.(?:gate|up)_proj.*", "visual.*", r".*layers\.(0|1)\..*mlp.*", "^(?!.*mlp).*$", ""),
)
SLOW = ("(.+)+x", "(a*)*", "[a-z_]*" * 9 + "x", "a?" * 60 + "x", "(q|q)" * 60 + "x", "q{9}", "(q)?" * 40, "(.*){9}x")


@pytest.mark.parametrize("pattern", USUAL)
def test_a_pattern_as_people_write_it_is_tried(pattern: str) -> None:
    assert is_quick(pattern)


@pytest.mark.parametrize("pattern", [*SLOW, "(", "a)", "[", "*", "\\", "(?P<x>a)", "(?i)a"])
def test_what_may_take_for_ever_or_is_no_pattern_is_not_tried(pattern: str) -> None:
    assert not is_quick(pattern)
