"""checkpoint-integrity: is this one checkpoint whole: its files, their checksums, and every tensor's values?

What a reader refuses (extents that overlap, leave a hole, end too soon) is an unreadable subject, and never comes here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, listed
from weighbridge.clauses.kind import Evidence, Kind, Need, codes, rows_of
from weighbridge.clauses.mutations import Breaks
from weighbridge.core import Doc, Fields, Outcome, SubjectKind, dataclass, plain
from weighbridge.quantities.checkpoints import FileStructure, OwnClaim, WrongChecksum
from weighbridge.quantities.tensors import TensorHealth

# Tied heads and embeddings, and buffers that every layer keeps a copy of.
REPEATED = (
    *("*lm_head.weight", "output.weight", "*embed_tokens.weight", "token_embd.weight", "*wte.weight", "*shared.weight"),
    *("*embed_out.weight", "*embed_in.weight", "*word_embeddings.weight", "*decoder.weight", "*decoder.bias"),
    *("*predictions.bias", "*inv_freq", "*attn.bias", "*attention.bias", "*mask*", "*position_ids"),
)


Globs: TypeAlias = tuple[str, ...]


def _ending(zeros: int, row: int) -> Fields:
    return {"all_zero": False, "zero_tail_bytes": zeros, "row_bytes": row, "zero_tail_columns": 0, "zero_rows": 0}


CLAIMS = ("shard", "layers", "packing")
VALUES = ("not-finite", "zero-columns", "zero-tail", "zero-rows", "all-zero", "repeated")
FAILS = (*VALUES, "name", "total-size", "beside", "checksum", *CLAIMS)
BLOCKED = ("not-decoded", "nothing-read")
SPARED = {"all-zero": "may_be_zero", "not-decoded": "may_be_undecoded"}
SPARED |= dict.fromkeys(("zero-tail", "zero-rows", "zero-columns"), "may_end_in_zeros")
_in_tensors = Breaks(
    need="tensors", row=TensorHealth, blocked=BLOCKED, why="every tensor is allowed to",
    spares=lambda row, limits, code: code in SPARED and listed(row.name, getattr(limits, SPARED[code])),
)  # fmt: skip
TOO_MANY = _in_tensors.beyond(
    ("NaN", "not-finite", lambda _, __, many: {"nan": many, "infinite": 0}),
    ("infinities", "not-finite", lambda _, __, many: {"nan": 0, "infinite": many}),
    ("both together", "not-finite", lambda _, __, many: {"nan": many - 1, "infinite": 1}),
)
HALF: Fields = {"shape": (2, 2), "zero_tail_columns": 1}
NARROW = 16  # a row of fewer elements, as of a convolution, may be zero where single weights were pruned
ROWS: Fields = {"shape": (2, NARROW), "zero_rows": 1}
CUT = _in_tensors.beyond(
    ("the end of a row", "zero-tail", lambda _, __, tail: _ending(tail, tail + 1)),
    ("a row and half of one", "zero-tail", lambda _, __, tail: _ending(3 * tail, 2 * tail)),
    ("half of its rows", "zero-tail", lambda _, __, tail: {**_ending(tail, tail), "bytes": 2 * tail, "shape": (2, 2)}),
    ("half of its columns", "zero-columns", lambda _, __, tail: {**_ending(0, tail), "bytes": 2 * tail, **HALF}),
    ("its first half of rows", "zero-rows", lambda _, __, tail: {**_ending(0, tail), "bytes": 2 * tail, **ROWS}),
)
TAIL = "zeros at a tensor's end that start inside a row, or are half of a matrix, in rows (anywhere) or in columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a whole checkpoint may hold all the same."""

    not_finite_at_most: Annotated[
        int, Doc("NaN and infinities in one tensor", ge=0, le=10**12, must="at most", moves=TOO_MANY)
    ] = 0
    zero_tail_below_bytes: Annotated[int, Doc(TAIL, unit="bytes", gt=0, le=10**12, must="below", moves=CUT)] = 4096
    may_end_in_zeros: Annotated[Globs, Doc("globs of tensors that may end in zeros", tight="down")] = ()
    may_be_zero: Annotated[Globs, Doc("globs of matrices that may be all zero", tight="down")] = ()
    may_repeat: Annotated[
        Globs, Doc("globs of tensors that may hold the same bytes, both of them named", tight="down")
    ] = REPEATED
    may_be_undecoded: Annotated[Globs, Doc("globs of tensors whose values need not be decoded", tight="down")] = ()
    may_lie_beside: Annotated[Globs, Doc("globs of files that may lie beside it", tight="down")] = ()
    may_disagree: Annotated[
        Globs, Doc("globs of files, lists of layers and codes that may not be as they are said", tight="down")
    ] = ()


def _each(need: str, row: type[Any], code: str, broken: Callable[[Any], Any], exempt: Globs = ()) -> Each[Any]:
    def seen(one: Any) -> Fields | None:
        wrong = one.wrong_checksums if isinstance(one, FileStructure) else ()
        counted = {"wrong": len(wrong), "first": plain(wrong[0])} if wrong else {}
        return {**plain(one), **counted} if broken(one) else None

    outcome = Outcome.BLOCKED if code in BLOCKED else Outcome.FAIL
    return Each(code=code, need=need, row=row, exempt=exempt, outcome=outcome, broken=seen)


_tensor, _file = partial(_each, "tensors", TensorHealth), partial(_each, "files", FileStructure)


def _claim(code: str, exempt: Globs) -> Each[Any]:
    return _each("claims", OwnClaim, code, lambda row: row.about == code and row.wrong, exempt)


def _is_matrix(row: TensorHealth) -> bool:
    return sum(n > 1 for n in row.shape) > 1


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return that each file and each tensor is in order; then that something was read, and all of it decoded."""
    beside = tuple(f"file {glob}" for glob in limits.may_lie_beside)

    def lacks_columns(row: TensorHealth) -> bool:
        many, of = row.zero_tail_columns, row.shape[-1] if row.shape else 0
        enough = row.bytes * many >= limits.zero_tail_below_bytes * of
        return 0 < of <= 2 * many and enough and not row.all_zero

    def cut_short(row: TensorHealth) -> bool:
        tail = row.zero_tail_bytes
        if tail < limits.zero_tail_below_bytes or row.all_zero:  # so is what has no element, whose rows have no bytes
            return False
        padding = tail % row.row_bytes == 0 and not (_is_matrix(row) and 2 * tail >= row.bytes)
        return not (padding or lacks_columns(row))

    def lacks_rows(row: TensorHealth) -> bool:
        enough = row.zero_rows * row.row_bytes >= limits.zero_tail_below_bytes and row.shape[-1] >= NARROW
        return enough and 2 * row.zero_rows * row.row_bytes >= row.bytes and not (row.all_zero or cut_short(row))

    def copied(row: TensorHealth) -> bool:
        """Return whether it is another's copy; equal constants are no copies, and tied ones are both named."""
        if row.repeats is None or row.constant:
            return False
        return not (listed(row.name, limits.may_repeat) and listed(row.repeats, limits.may_repeat))

    return (
        _file("total-size", lambda row: row.declared_bytes is not None and row.declared_bytes != row.tensor_bytes),
        _file("beside", lambda row: row.role == "beside", beside),
        _file("checksum", lambda row: bool(row.wrong_checksums)),
        *(_claim(code, limits.may_disagree) for code in CLAIMS),
        _tensor("not-finite", lambda row: (row.nan or 0) + (row.infinite or 0) > limits.not_finite_at_most),
        _tensor("zero-columns", lacks_columns, limits.may_end_in_zeros),
        _tensor("zero-tail", cut_short, limits.may_end_in_zeros),
        _tensor("zero-rows", lacks_rows, limits.may_end_in_zeros),
        _tensor("all-zero", lambda row: row.all_zero and _is_matrix(row), limits.may_be_zero),
        _tensor("repeated", copied),
        _tensor("name", lambda row: bool(row.name_flaws)),
        Requires(code="nothing-read", lacking=_nothing_read),
        _tensor("not-decoded", lambda row: row.nan is None, limits.may_be_undecoded),
    )


def _nothing_read(evidence: Evidence) -> Fields | None:
    tensors, files = rows_of(evidence, "tensors", TensorHealth), rows_of(evidence, "files", FileStructure)
    if files and len(rows_of(evidence, "claims", OwnClaim)) and any(row.elements for row in tensors):
        return None
    return {"tensors": len(tensors), "files": len(files)}


def figures(evidence: Evidence, _limits: Limits) -> Fields:
    """Return how much was read, and what is odd but in order."""
    tensors, files = rows_of(evidence, "tensors", TensorHealth), rows_of(evidence, "files", FileStructure)
    return {
        "unit": "places",
        "tensors": len(tensors),
        "files": sum(row.role != "beside" for row in files),
        "bytes": sum(row.bytes for row in tensors),
        "others": sum(row.other_tensors for row in files),
        "checksums": sum(row.checksums for row in files),
        "finite_unknown": sum(row.nan is None for row in tensors),
        "all_zero": sum(row.all_zero for row in tensors),
        "ending_in_zeros": sum(bool(row.zero_tail_bytes) and not row.all_zero for row in tensors),
        "repeated": sum(row.repeats is not None and not row.constant for row in tensors),
    }


ZEROS: dict[str, Any] = {"all_zero": True, "constant": True, "elements": 4}
WRONG = WrongChecksum(place="data", stored="0x00000000", computed="0x00000001")
_in_files = Breaks(
    need="files",
    row=FileStructure,
    why="every file is allowed to, or not in these places",
    spares=lambda row, limits, code: code == "beside" and listed(row.name.partition(" ")[2], limits.may_lie_beside),
)
_in_claims = Breaks(
    need="claims",
    row=OwnClaim,
    why="all may disagree",
    spares=lambda row, limits, _: listed(row.name, limits.may_disagree),
)


def _copied(row: TensorHealth, limits: Limits, other: str = "") -> Fields | None:
    tied = listed(row.name, limits.may_repeat) and listed(other, limits.may_repeat)
    return None if tied or not other else {"repeats": other, "constant": False}


KIND = Kind(
    name="checkpoint-integrity", version=7, roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"tensors": Need("tensor_health", of=("candidate",)), "files": Need("file_structure", of=("candidate",)),
           "claims": Need("own_claims", of=("candidate",))},
    limits=Limits, codes=codes(*FAILS, blocked=BLOCKED), judge=ClauseJudge(clauses, figures, by_place=True),
    mutations=(
        _in_tensors("a matrix zeroed", "all-zero", **ZEROS, shape=(2, 2)),
        _in_tensors("a matrix of one head zeroed", "all-zero", **ZEROS, shape=(1, 2, 2)),
        _in_tensors("a copy of another", "repeated", lambda row, limits: _copied(row, limits, "another")),
        _in_tensors("a copy of a tied one", "repeated", lambda row, given: _copied(row, given, *given.may_repeat[:1])),
        _in_tensors("a path for a name", "name", name_flaws=("a path",)),
        _in_files("one byte more declared", "total-size", lambda row, _: {"declared_bytes": row.tensor_bytes + 1}),
        _in_files("one byte less declared", "total-size", lambda row, _: {"declared_bytes": row.tensor_bytes - 1}),
        _in_files("a file left over", "beside", role="beside"),
        _in_files("a checksum contradicted", "checksum", wrong_checksums=(WRONG,)),
        *(_in_claims(f"a claim of {code} contradicted", code, about=code, wrong="it is not so") for code in CLAIMS),
        _in_tensors("values that nobody decodes", "not-decoded", nan=None, infinite=None),
        _in_tensors.only("every tensor empty", "nothing-read", lambda *_: {"elements": 0}, "no tensors"),
    ),
)  # fmt: skip
