"""byte-identity: are the named tensors byte for byte the same, dtype and shape included?"""

from fnmatch import fnmatchcase
from typing import Annotated

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, Mutation, blocked, rows_of
from weighbridge.clauses.mutations import Breaks, without_all_of_a_glob
from weighbridge.core import Doc, Outcome, Verdict, dataclass
from weighbridge.gates.families import tensor_pairs
from weighbridge.gates.families.tensor_pairs import KEYS, UNREAD, MayIgnore, columns_of
from weighbridge.gates.trials.pair_trials import NO_DTYPE, deeper, longer
from weighbridge.quantities.tensors import TensorPair

FIGURES = (
    *("source_dtype", "candidate_dtype", "source_shape", "candidate_shape", "source_bytes", "candidate_bytes"),
    *("differing_bytes", "first_difference", "packed", "no_rule"),
)
IDLE = "names-nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which tensors must be the same."""

    tensors: Annotated[tuple[str, ...], Doc("globs of the tensors that must be the same", min_items=1, tight="up")] = (
        "*",
    )
    may_ignore: MayIgnore = ()


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Demand the same dtype, shape and bytes of every named tensor; a glob that names none is a typo, not a pass."""
    pairs = rows_of(evidence, "pairs", TensorPair)
    named = [pair for pair in pairs if listed(pair.name, limits.tensors)]
    size = {"bytes": sum(pair.source_bytes for pair in named)}
    coded = [(pair, code_of(pair)) for pair in named]
    verdict = tensor_pairs.verdict_of(coded, lambda pair, *_: columns_of(pair, FIGURES), size, names=len(pairs))
    idle = [glob for glob in limits.tensors if not any(fnmatchcase(pair.name, glob) for pair in named)]
    if verdict.outcome is Outcome.PASS and idle:
        return blocked(IDLE, {"globs": idle, "names": len(pairs)})
    return tensor_pairs.with_files(verdict, evidence, limits)


def code_of(pair: TensorPair) -> str:
    """Return what is not the same of a tensor, or nothing."""
    wrong = {
        "missing": not pair.candidate_dtype,
        "extra": not pair.source_dtype,
        "packed": pair.packed and KEYS not in pair.reproduced,
        "dtype": pair.source_dtype != pair.candidate_dtype,
        "shape": pair.source_shape != pair.candidate_shape,
        "not-compared": not pair.compared,
        "bytes": pair.differing_bytes != 0,
    }
    return next((code for code, is_so in wrong.items() if is_so), "")


_breaks = Breaks(
    need="pairs",
    row=TensorPair,
    blocked=UNREAD,
    why="no such tensor is named",
    spares=lambda pair, limits, _: not listed(pair.name, limits.tensors),
)

DAMAGE: tuple[Mutation[Limits], ...] = (
    _breaks("one byte differs", "bytes", differing_bytes=1),
    _breaks("bytes not counted", "bytes", differing_bytes=None),
    _breaks("the same bytes under another dtype", "dtype", candidate_dtype=NO_DTYPE),
    _breaks("another dtype in the source", "dtype", source_dtype=NO_DTYPE),
    _breaks("a dimension more", "shape", deeper),
    _breaks("one longer", "shape", longer),
    _breaks("dropped", "missing", candidate_dtype=""),
    _breaks("added", "extra", source_dtype=""),
    _breaks("not compared", "not-compared", compared=False),
    _breaks("packed on one side", "packed", packed="an unknown method", reproduced={}),
    _breaks("dropped where no rule speaks", "no-rule", candidate_dtype="", no_rule="a family"),
    _breaks.only("every tensor empty", "nothing-compared", lambda *_: {"elements": 0}, "there is no tensor"),
    without_all_of_a_glob(IDLE, "pairs", TensorPair, lambda limits: limits.tensors),
)
KIND = tensor_pairs.kind_of_pairs(
    "byte-identity", version=6, limits=Limits, judge=judge, fails=("bytes",), blocked=(IDLE,), mutations=DAMAGE
)
