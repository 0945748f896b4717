"""checkpoint-integrity: is this one checkpoint whole: its files, their checksums, and every tensor's values?

What a reader refuses (extents that overlap, leave a hole, end too soon) is an unreadable subject, and never comes here.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.clauses.kind import (
    Damage,
    Evidence,
    Falsifier,
    Kind,
    Need,
    NotApplicable,
    blocked,
    each_row,
    failed,
    passed,
    rows_of,
    with_value,
)
from weighbridge.clauses.pair_damage import blank_table
from weighbridge.gates.dtype_preservation import listed
from weighbridge.limits import Doc
from weighbridge.model import Fields, Offence, Outcome, Rows, SubjectKind, Verdict

# Tied heads and embeddings, and buffers that every layer keeps a copy of.
REPEATED = (
    "*lm_head.weight", "output.weight", "*embed_tokens.weight", "token_embd.weight", "*wte.weight", "*shared.weight",
    "*embed_out.weight", "*embed_in.weight", "*word_embeddings.weight", "*decoder.weight", "*decoder.bias",
    "*predictions.bias", "*inv_freq", "*attn.bias", "*attention.bias", "*mask*", "*position_ids",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a whole checkpoint may hold all the same."""

    not_finite_at_most: Annotated[int, Doc("NaN and infinities in one tensor", ge=0, le=10**12, tight="down")] = 0
    zero_tail_below_bytes: Annotated[
        int, Doc("run of zeros at a tensor's end that starts inside a row", unit="bytes", gt=0, le=10**12, tight="down")
    ] = 4096
    may_end_in_zeros: Annotated[tuple[str, ...], Doc("globs of tensors that may end in zeros", tight="down")] = ()
    may_be_zero: Annotated[tuple[str, ...], Doc("globs of matrices that may be all zero", tight="down")] = ()
    may_repeat: Annotated[
        tuple[str, ...], Doc("globs of tensors that may hold the same bytes, both of them named", tight="down")
    ] = REPEATED
    may_be_undecoded: Annotated[
        tuple[str, ...], Doc("globs of tensors whose values need not be decoded", tight="down")
    ] = ()
    may_lie_beside: Annotated[tuple[str, ...], Doc("globs of files that may lie beside it", tight="down")] = ()


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Demand that every tensor and every file of the checkpoint is in order."""
    tensors, files = rows_of(evidence, "tensors"), rows_of(evidence, "files")
    offences = [_offence(row, code) for row in files for code in _file_codes(row, limits)]
    offences += [_offence(row, code) for row in tensors for code in _tensor_codes(row, limits)]
    looked = [str(row["name"]) for row in (*files, *tensors)]
    if offences:
        return failed(offences, looked=looked, unit="places", figures=_figures(tensors, files))
    if not files or not any(row["elements"] for row in tensors):
        return blocked("nothing-read", {"tensors": len(tensors), "files": len(files)})
    unread = [row for row in tensors if row["nan"] is None and not listed(str(row["name"]), limits.may_be_undecoded)]
    if unread:
        offences = [_offence(row, "not-decoded") for row in unread]
        return blocked("not-decoded", _figures(tensors, files), offences=offences, of=len(looked))
    return passed(looked=looked, unit="places", figures=_figures(tensors, files))


def _tensor_codes(row: Fields, limits: Limits) -> list[str]:
    name = str(row["name"])
    found = {
        "not-finite": _number(row["nan"]) + _number(row["infinite"]) > limits.not_finite_at_most,
        "zero-tail": _cut_short(row, limits) and not listed(name, limits.may_end_in_zeros),
        "all-zero": bool(row["all_zero"]) and _is_matrix(row) and not listed(name, limits.may_be_zero),
        "repeated": _repeated(row, limits),
        "name": bool(row["name_flaws"]),
    }
    return [code for code, broken in found.items() if broken]


def _cut_short(row: Fields, limits: Limits) -> bool:
    tail = _number(row["zero_tail_bytes"])
    return tail >= limits.zero_tail_below_bytes and tail % _number(row["row_bytes"]) != 0


def _repeated(row: Fields, limits: Limits) -> bool:
    """Tell whether this tensor is another one's copy; equal constants are no copies, and tied ones are named."""
    if row["repeats"] is None or row["constant"]:
        return False
    return not (listed(str(row["name"]), limits.may_repeat) and listed(str(row["repeats"]), limits.may_repeat))


def _is_matrix(row: Fields) -> bool:
    shape: Any = row["shape"]
    return len([size for size in shape if size > 1]) > 1


def _file_codes(row: Fields, limits: Limits) -> list[str]:
    declared = row["declared_bytes"]
    found = {
        "total-size": declared is not None and declared != row["tensor_bytes"],
        "beside": row["role"] == "beside" and not listed(_file(row), limits.may_lie_beside),
        "checksum": bool(row["wrong_checksums"]),
    }
    return [code for code, broken in found.items() if broken]


def _file(row: Fields) -> str:
    return str(row["name"]).removeprefix("file ")


def _number(value: Any) -> int:
    return 0 if value is None else int(value)


def _offence(row: Fields, code: str) -> Offence:
    figures = {key: value for key, value in row.items() if key != "name"}
    if code == "checksum":
        wrong: Any = row["wrong_checksums"]
        figures |= {"wrong": len(wrong), "first": wrong[0]}
    return Offence(place=str(row["name"]), code=code, figures=figures)


def _figures(tensors: Sequence[Fields], files: Sequence[Fields]) -> Fields:
    """Tell how much was read, and what is odd but in order."""
    padded = [row for row in tensors if _number(row["zero_tail_bytes"]) and not row["all_zero"]]
    return {
        "tensors": len(tensors),
        "files": sum(row["role"] != "beside" for row in files),
        "bytes": sum(_number(row["bytes"]) for row in tensors),
        "checksums": sum(_number(row["checksums"]) for row in files),
        "finite_unknown": sum(row["nan"] is None for row in tensors),
        "all_zero": sum(bool(row["all_zero"]) for row in tensors),
        "ending_in_zeros": len(padded),
        "repeated": sum(row["repeats"] is not None and not row["constant"] for row in tensors),
    }


# --- Falsifiers: by rules of their own, so that a weakened rule of the judge cannot weaken them too -------------------


def _free(name: str, globs: Sequence[str]) -> bool:
    return not any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def _tensor(name: str, code: str, change: Callable[[Fields, Limits], Fields | None], why: str) -> Falsifier[Limits]:
    return each_row(name, code, "tensors", change, why=why)


def _of_file(name: str, code: str, change: Callable[[Fields, Limits], Fields | None], why: str) -> Falsifier[Limits]:
    return each_row(name, code, "files", change, why=why)


def _tail(tail: Callable[[int], int], row_bytes: Callable[[int], int]) -> Callable[[Fields, Limits], Fields | None]:
    def change(row: Fields, limits: Limits) -> Fields | None:
        if not _free(str(row["name"]), limits.may_end_in_zeros):
            return None
        least = limits.zero_tail_below_bytes
        return {**row, "all_zero": False, "zero_tail_bytes": tail(least), "row_bytes": row_bytes(least)}

    return change


def _zeroed(shape: Sequence[int]) -> Callable[[Fields, Limits], Fields | None]:
    def change(row: Fields, limits: Limits) -> Fields | None:
        free = _free(str(row["name"]), limits.may_be_zero)
        return {**row, "all_zero": True, "constant": True, "shape": list(shape), "elements": 4} if free else None

    return change


def _copied(row: Fields, limits: Limits) -> Fields | None:
    """Make the tensor repeat one that may not be repeated, whether it may itself or not."""
    other = "another"
    return {**row, "repeats": other, "constant": False} if _free(other, limits.may_repeat) else None


def _copied_from_tied(row: Fields, limits: Limits) -> Fields | None:
    if not limits.may_repeat or not _free(str(row["name"]), limits.may_repeat):
        return None
    return {**row, "repeats": limits.may_repeat[0], "constant": False}


def _closed(row: Fields, limits: Limits) -> Fields | None:
    return {**row, "nan": None, "infinite": None} if _free(str(row["name"]), limits.may_be_undecoded) else None


def _first_closed(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
    """Close the first tensor alone; the files come before it in what was looked at."""
    rows = rows_of(evidence, "tensors")
    closed = _closed(rows[0], limits)
    if closed is None or str(rows[0]["name"]) not in places:
        return NotApplicable("the first tensor need not be decoded, or is not among these")
    return Damage(with_value(evidence, "tensors", Rows("name", (closed, *rows[1:]))), frozenset())


def _declared(by: int) -> Callable[[Fields, Limits], Fields]:
    return lambda row, _: {**row, "declared_bytes": _number(row["tensor_bytes"]) + by}


def _stray(row: Fields, limits: Limits) -> Fields | None:
    name = str(row["name"]).partition(" ")[2]
    return {**row, "role": "beside"} if _free(name, limits.may_lie_beside) else None


def _contradicted(row: Fields, _limits: Limits) -> Fields:
    return {**row, "wrong_checksums": [{"place": "data", "stored": "0x00000000", "computed": "0x00000001"}]}


KIND = Kind(
    name="checkpoint-integrity",
    version=1,
    roles={"candidate": SubjectKind.CHECKPOINT},
    needs={
        "tensors": Need("tensor_health", of=("candidate",)),
        "files": Need("file_structure", of=("candidate",)),
    },
    limits=Limits,
    codes={
        "not-finite": Outcome.FAIL,
        "zero-tail": Outcome.FAIL,
        "all-zero": Outcome.FAIL,
        "repeated": Outcome.FAIL,
        "name": Outcome.FAIL,
        "total-size": Outcome.FAIL,
        "beside": Outcome.FAIL,
        "checksum": Outcome.FAIL,
        "not-decoded": Outcome.BLOCKED,
        "nothing-read": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=(
        _tensor("one NaN too many", "not-finite",
                lambda row, limits: {**row, "nan": limits.not_finite_at_most + 1, "infinite": 0}, "no tensors"),
        _tensor("one infinity too many", "not-finite",
                lambda row, limits: {**row, "nan": 0, "infinite": limits.not_finite_at_most + 1}, "no tensors"),
        _tensor("NaN and infinities together too many", "not-finite",
                lambda row, limits: {**row, "nan": limits.not_finite_at_most, "infinite": 1}, "no tensors"),
        _tensor("the end of a row zeroed", "zero-tail", _tail(lambda n: n, lambda n: n + 1), "all may end in zeros"),
        _tensor("a row and half of one zeroed", "zero-tail", _tail(lambda n: 3 * n, lambda n: 2 * n), "all may end so"),
        _tensor("a matrix zeroed", "all-zero", _zeroed((2, 2)), "every tensor may be zero"),
        _tensor("a matrix of one head zeroed", "all-zero", _zeroed((1, 2, 2)), "every tensor may be zero"),
        _tensor("a copy of another", "repeated", _copied, "every tensor may be repeated"),
        _tensor("a copy of a tied one", "repeated", _copied_from_tied, "every tensor here may be repeated"),
        _tensor("a path for a name", "name", lambda row, _: {**row, "name_flaws": ["a path"]}, "no tensors"),
        _of_file("one byte more declared", "total-size", _declared(1), "no files"),
        _of_file("one byte less declared", "total-size", _declared(-1), "no files"),
        _of_file("a file left over", "beside", _stray, "every file may lie beside"),
        _of_file("a checksum contradicted", "checksum", _contradicted, "no files"),
        each_row("values that nobody decodes", "not-decoded", "tensors", _closed, why="no tensor need be decoded",
                 outcome=Outcome.BLOCKED),
        Falsifier("the first tensor alone that nobody decodes", "not-decoded", _first_closed, Outcome.BLOCKED),
        blank_table("every tensor empty", lambda row, _: {**row, "elements": 0}, why="no tensors", code="nothing-read",
                    need="tensors"),
    ),
)  # fmt: skip
