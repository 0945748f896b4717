"""Which policy an import would pass under: each is tried on what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from weighbridge.core import GateDecl, LimitsError, Measurement, Outcome, Verdict, read
from weighbridge.evaluation.runner import Evaluation
from weighbridge.gates import value_preservation
from weighbridge.gates.families.block_types import BOUND, RECIPES, TYPICAL_ERROR
from weighbridge.gates.families.policies import CEILING, TARGETS
from weighbridge.gates.families.tensor_pairs import is_exact, two_sided
from weighbridge.judging.requests import request_for
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import TensorPair

OF_POLICY = {"dtype", "packing", "unmade", "file-type", "content", "packed"}  # what another policy may accept


def policy_that_passes(evaluation: Evaluation, gate: GateDecl, instance: str, verdict: Verdict) -> str:
    """Return the plainest policy under which what a gate judged passes, under its other limits; "" without one."""
    keys = {name: request_for(gate, need, instance).key for name, need in value_preservation.KIND.needs.items()}
    found = {name: evaluation.measured.get(key) for name, key in keys.items()}
    evidence = {name: item for name, item in found.items() if isinstance(item, Measurement)}
    canary = evaluation.canaries.get(keys["pairs"])
    if {offence.code for offence in verdict.offences} - OF_POLICY or canary is None or not canary.seen:
        return ""
    others = ("allow", "allow_missing", "allow_extra", "may_ignore")
    allowed, asked = {name: gate.limits[name] for name in others if name in gate.limits}, str(gate.limits.get("policy"))
    for policy in _policies(rows_of(evidence["pairs"], TensorPair), f"{CEILING}{asked.removeprefix(CEILING)}"):
        try:
            tried = read(value_preservation.Limits, {**allowed, "policy": policy})
        except LimitsError:  # a ceiling over what has none
            continue
        if value_preservation.judge(evidence, tried).outcome is Outcome.PASS:
            return policy
    return ""


def _policies(rows: Iterable[TensorPair], ceiling: str) -> Iterator[str]:
    """Yield what could have made these dtypes: results before ceilings, the one that was asked for first of these."""
    changed = [row for row in rows if two_sided(row) and (row.packed or not is_exact(row))]
    found = {row.candidate_dtype for row in changed}
    blocks = sorted(found & set(BOUND), key=TYPICAL_ERROR.__getitem__)
    stated = {row.file_type for row in changed}
    mixtures = [name for name, one in RECIPES.items() if one.number in stated]
    exact = [f"requant:{dtype}" for dtype in blocks if dtype in TARGETS["requant"]]
    of_blocks = [*exact, *(f"quantised:{name}" for name in (*mixtures, *blocks[-1:]))] if blocks else []
    packed = ["packed"] if any(row.packed for row in changed) else []
    rounded = [f"rounded:{dtype}" for dtype in TARGETS["rounded"] if dtype in found]
    classes = ([*kind, ""] for kind in (packed, rounded, of_blocks))
    joined = ["+".join(filter(None, parts)) for parts in itertools.product(*classes)]
    ordered = sorted(filter(None, joined), key=lambda policy: policy.count("+"))
    yield from (*ordered, ceiling, "lossless", *(f"{CEILING}{policy}" for policy in ordered))
