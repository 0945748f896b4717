"""Weaken one clause of the judge at a time: each time the trials notice, so that a pass would come back BLOCKED."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tests.gates.test_forward_parity import FULL, table

from weighbridge.gates import forward_parity
from weighbridge.judging import falsify
from weighbridge.model import Outcome, TrialResult

SOURCE = Path(forward_parity.__file__).read_text(encoding="utf-8")
JUDGE, MARK, FALSIFIERS = SOURCE.partition("# --- Falsifiers")

WEAKER = [
    ('limits.ratio * _number(row["rl2_reference"])', '10 * _number(row["rl2_reference"])'),
    ('limits.floor_u * _number(row["u"])', '2 * limits.floor_u * _number(row["u"])'),
    ("return max(limits.ratio", "return 1.5 * max(limits.ratio"),
    ('_number(row["tokens"]) < limits.min_tokens or ', ""),
    (' or _number(row["sequences"]) < limits.min_sequences', ""),
    ('row["tokens"]) < limits.min_tokens', 'row["tokens"]) < limits.min_tokens - 1'),
    ('row["sequences"]) < limits.min_sequences', 'row["sequences"]) < limits.min_sequences - 1'),
    ('row["distinct_tokens"]) < 2', 'row["distinct_tokens"]) < 1'),
    ('not row["audited_ops"] or ', ""),
    ('or row["lower_ops"] ', ""),
    (' or row["rounded_constants"]', ""),
    ('if limits.dtype and row["dtype"] != limits.dtype:', "if False:"),
    ('row["device"] not in ("", limits.device)', "False"),
    ("for row in rows if (code := _unfit(row, limits))", "for row in rows[:1] if (code := _unfit(row, limits))"),
    ("for row in rows if (code := _unfit(row, limits))", "for row in rows[1:] if (code := _unfit(row, limits))"),
    ('if row["reference_shape"] is None:', "if False:"),
    ('if row["candidate_shape"] is None:', "if False:"),
    ('if row["reference_shape"] != row["candidate_shape"]:', "if False:"),
    ('row["nonfinite_candidate"] != 0', 'row["nonfinite_candidate"] > 1'),
    ('return "" if row["candidate_error"] == 0 else "zero-truth"', 'return ""'),
    ('row["candidate_error"] == 0 else', 'row["candidate_error"] <= 1e-30 else'),
    ('if row["candidate_error"] == 0 else', 'if not row["candidate_error"] > 0 else'),
    ('if not _is_error(row["rl2_candidate"]):', "if False:"),
    ('<= allowed(row, limits) else "diverged"', '<= allowed(row, limits) * 1.0001 else "diverged"'),
    ("math.isfinite(value) and ", ""),
    ("math.isfinite(value) and ", "not math.isnan(value) and "),
    ("(o for row in rows if (o := _offence(row, limits)))", "(o for row in rows[:1] if (o := _offence(row, limits)))"),
    ("(o for row in rows if (o := _offence(row, limits)))", "(o for row in rows[1:] if (o := _offence(row, limits)))"),
    ("for row in rows:\n        code = _doubt", "for row in rows[:1]:\n        code = _doubt"),
    ("for row in rows:\n        code = _doubt", "for row in rows[1:]:\n        code = _doubt"),
    ("if compared < limits.min_points:", "if compared < 1:"),
    ("if compared < limits.min_points:", "if compared < limits.min_points - 1:"),
    ('if row["nonfinite_reference"] != 0:', "if False:"),
    ('row["elements"]) < limits.min_elements', 'row["elements"]) < limits.min_elements - 1'),
    ('if not _is_error(row["rl2_reference"]):\n        return "no-trusted-run"', "if False:\n        return ''"),
    ("> limits.max_limit else", "> limits.max_limit * 1.01 else"),
    ('return bool(row["truth_norm"])', "return True"),
    ("for point in limits.required if point not in present", "for point in limits.required[:1] if False"),
    ('return blocked("nothing-compared", {"compared": 0', 'return passed(looked=["x"], figures={"compared": 0'),
]


def weakened(old: str, new: str) -> Any:
    assert old in JUDGE, "the clause is no longer written so; write the mutant anew"
    module = types.ModuleType("weighbridge.gates.forward_parity_weakened")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(JUDGE.replace(old, new, 1) + MARK + FALSIFIERS, module.__name__, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize(("old", "new"), WEAKER)
def test_a_weakened_clause_cannot_pass_unnoticed(old: str, new: str) -> None:
    module = weakened(old, new)
    limits = module.Limits(**FULL)
    verdict = module.judge(table(), limits)
    assert verdict.outcome is Outcome.PASS
    survived = [t.name for t in falsify(module.KIND, table(), limits, verdict) if t.result is TrialResult.SURVIVED]
    assert survived
