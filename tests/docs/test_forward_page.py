"""The numbers of the page about the method are those of the models that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.verifiers.stacks import REFERENCE, measured, named, rows  # noqa: E402

from weighbridge.gates.families.local_errors import Limits, allowed  # noqa: E402

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "forward-parity.md").read_text("utf-8")
POINT = "L1.attn.q.post_bias"


def told(row: str) -> list[float]:
    (cells,) = re.findall(rf"^\| {re.escape(row)} \| (.+) \|$", PAGE, re.MULTILINE)
    return [float(cell.removesuffix(" %")) for cell in cells.split(" | ")]


def figures(error: object) -> list[float]:
    return [getattr(error, of) for of in ("all", "token", "channel")]


@pytest.mark.slow
def test_the_worked_point_is_as_the_page_tells_it() -> None:
    fused = rows(measured(REFERENCE, named("fused")))[POINT]
    broken = rows(measured(REFERENCE, named("bias_dropped")))[POINT]
    limit = allowed(fused, Limits())
    expected = {
        "trusted run": fused.trusted, "fused kernels": fused.candidate, "limit": limit,
        "bias forgotten": broken.candidate, "its rough run": broken.rough, "its limit": allowed(broken, Limits()),
    }  # fmt: skip
    for name, error in expected.items():
        assert told(name) == pytest.approx(figures(error), rel=0.2), name
    pairs = zip(figures(fused.candidate), figures(limit), strict=True)
    assert told("share of it") == pytest.approx([100 * one / of for one, of in pairs], rel=0.2)
    assert fused.rough.all is None


def test_the_factors_of_the_limit_are_the_defaults() -> None:
    limits = Limits()
    assert f"{limits.ratio} × the trusted run's error, {limits.rough_ratio} × the rough run's" in PAGE
    assert f"{limits.floor_u} u. Over the worst token" in PAGE
    assert f"it is {limits.tail_ratio:g} × the larger of both, or {limits.tail_floor_u:g} u" in PAGE
