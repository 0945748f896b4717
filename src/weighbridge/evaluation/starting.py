"""What a first contract should say: which shipped one fits a run, and the policy that an import states of itself."""

from __future__ import annotations

import math
from pathlib import Path

from weighbridge.contract.load import BUILTIN, load_contract
from weighbridge.core import Measurement, exists, local_path
from weighbridge.evaluation.binding import all_instances, bind
from weighbridge.evaluation.runner import EvaluationSession
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact

RECORDED, LOGGED = "training-run", "training-log"
FLOATS = ("F64", "F32", "F16", "BF16")


def is_here(target: str) -> bool:
    """Return whether a target lies on this machine, so that it can be looked at."""
    path = local_path(target.removeprefix("hf:"))
    return path is not None and exists(path)


def contract_of(run: str) -> tuple[str, dict[str, str]]:
    """Return the name of the contract for a run, and the parameters under which this one passes."""
    contract = load_contract(f"{BUILTIN}{RECORDED}").contract
    bound = bind(contract, Path(), [f"run={run}"])
    for one in bound:
        if "pid" not in one.open().facts:
            return LOGGED, {}
    found = EvaluationSession(contract=contract, bound=bound, on=all_instances(contract, bound)).evaluate()
    facts = next((item for key, item in found.measured.items() if key.startswith("facts.run.")), None)
    said = {fact.name: str(fact.value) for fact in rows_of(facts, Fact)} if isinstance(facts, Measurement) else {}
    known = {"device": said.get("requested_device"), "tokens_per_step": said.get("tokens_per_step")}
    timed = next(one for one in found.findings if one.kind == "wall-time-budget")
    median = (timed.uncounted or timed.verdict).measured  # what another shape than the contract's took, too
    if isinstance(median, (int, float)):
        known["budget_ms"] = str(math.ceil(1.5 * median))  # half as much again, as --from-run says
    return RECORDED, {name: value for name, value in known.items() if value is not None}


def policy_of(source: str, candidate: str) -> tuple[str, str]:
    """Return what a file states that it was made to be, as a policy, and where it states it; "" where it does not."""
    from weighbridge.gates.families import block_types
    from weighbridge.packing.packed_weights import marked, settings_of
    from weighbridge.views.checkpoint import open_checkpoint

    made, of = open_checkpoint(candidate), open_checkpoint(source)
    before = {one.dtype for one in of.tensors.values() if one.dtype in FLOATS}
    number = made.metadata.get("general.file_type")
    rounded = next((name for name, one in block_types.ROUNDED_TYPES.items() if one == number), "")
    states = f"general.file_type {number}"
    if (settings := settings_of(made)) and any(marked(made)):  # packers store what they leave in one dtype
        both = (one.dtype for name, one in made.tensors.items() if name in of.tensors and one.dtype in FLOATS)
        rounded = next((dtype for dtype in both if dtype in block_types.ROUNDED_TYPES and before - {dtype}), "")
        states = f"quantization_config {settings.get('quant_method') or settings.get('bits')}"
        return "packed" + (f"+rounded:{rounded}" if rounded else ""), states
    if rounded and before - {rounded}:
        return f"rounded:{rounded}", states
    mixture = next((name for name, one in block_types.RECIPES.items() if one.number == number), "")
    if not mixture:
        return ("lossless", states) if isinstance(number, int) else ("", "")
    alone = {one.dtype for one in made.tensors.values()} - {*FLOATS} == {mixture}
    return f"{'requant' if alone and mixture in block_types.UNWEIGHTED else 'quantised'}:{mixture}", states
