"""dtype-preservation: does every tensor keep its source dtype, and is its content what the source gives under it?

Where content does not follow from the source, the simplest mechanism is named that explains every bit of all offenders
of the same change of dtype; never one from zeros alone.
"""

import collections
from typing import Annotated, Any

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, rows_of
from weighbridge.core import Doc, Fields, Verdict, dataclass
from weighbridge.gates.families import tensor_pairs
from weighbridge.gates.families.tensor_pairs import Meant, is_exact, two_sided
from weighbridge.gates.trials.pair_trials import breaks, of_policy
from weighbridge.quantities.tensors import TensorPair

POLICY = "same: the very dtype; lossless: the same or an exact widening"
FORM = "same or lossless; the kind value-preservation takes the other policies"
FIGURES = ("source_dtype", "candidate_dtype", "source_shape", "candidate_shape", "elements", "first_difference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Meant):
    """What may become of a dtype."""

    policy: Annotated[str, Doc(POLICY, choices=("same", "lossless"), any_case=True, form=FORM, tight="down")] = "same"


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Compare every tensor's dtype with the policy, and its content with its dtype."""
    pairs = rows_of(evidence, "pairs", TensorPair)
    changes = collections.Counter(f"{pair.source_dtype} -> {pair.candidate_dtype}" for pair in filter(two_sided, pairs))
    summary: Fields = {"elements": sum(pair.elements for pair in pairs), "dtypes": dict(sorted(changes.items()))}
    verdict = tensor_pairs.verdict_of([(pair, code_of(pair, limits)) for pair in pairs], _figures, summary)
    return tensor_pairs.with_files(verdict, evidence, limits)


def code_of(pair: TensorPair, limits: Limits) -> str:
    """Return what is wrong with a tensor, or nothing."""
    if not pair.candidate_dtype:
        return "" if tensor_pairs.may_go(pair) or listed(pair.name, limits.allow_missing) else "missing"
    if not pair.source_dtype:
        return "" if tensor_pairs.may_come(pair) or listed(pair.name, limits.allow_extra) else "extra"
    if pair.source_shape != pair.candidate_shape:
        return "shape"
    if pair.packed and not (pair.compared and tensor_pairs.KEYS in pair.reproduced):
        return "packed"
    kept = pair.source_dtype == pair.candidate_dtype
    if not (kept or (limits.policy == "lossless" and is_exact(pair)) or limits.allows(pair)):
        return "dtype"
    if _given(pair) is None:
        return "not-compared"
    if _given(pair) != pair.elements:
        return "content"
    return "overflow" if pair.overflowed else ""


def _given(pair: TensorPair) -> int | None:
    """Return how many elements the source's values give under the candidate's dtype."""
    counts = pair.reproduced
    if pair.source_dtype == pair.candidate_dtype and "identical" in counts:  # it is not where the tensor is computed
        return counts["identical"]
    return pair.elements if tensor_pairs.is_exponential(pair) else counts.get("value-cast")


def _figures(pair: TensorPair, code: str, mechanism: str) -> Fields:
    why = tensor_pairs.explanation(pair, code, mechanism, pair.reproduced.get(mechanism, 0))
    differing = {"differing": pair.elements - (_given(pair) or 0)} if code == "content" else {}
    return {**tensor_pairs.columns_of(pair, FIGURES), **why, **differing}


def _one_fewer(pair: TensorPair, _limits: Limits) -> dict[str, Any] | None:
    counts = dict.fromkeys(("identical", "value-cast"), pair.elements)
    counts["identical" if pair.source_dtype == pair.candidate_dtype else "value-cast"] -= 1
    return {"reproduced": counts, "max_ulps": 2} if pair.elements else None


def _one_more(pair: TensorPair, _limits: Limits) -> dict[str, Any]:
    return {"reproduced": dict.fromkeys(("identical", "value-cast"), pair.elements + 1), "max_ulps": None}


KIND = tensor_pairs.kind_of_pairs(
    "dtype-preservation", version=8, limits=Limits, judge=judge, fails=("content", "overflow"),
    mutations=(
        *of_policy(lambda _pair, _dtype, _policy: False),
        breaks("one element changed", "content", _one_fewer, "no tensor of both sides has elements"),
        breaks("more elements than there are", "content", _one_more),
    ),
)  # fmt: skip
