"""config-agreement: do source and import say the same of their model: shapes, rotary positions, tokens, templates?

A wrong rope base alone breaks a model whose tensors are perfect. What one side states is held against what the other
states, or what a loader takes where nothing is said; what cannot be compared is told, and never counts as agreement.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from weighbridge.clauses.kind import Evidence, Falsifier, Kind, Need, blocked, each_row, failed, passed, rows_of
from weighbridge.clauses.pair_damage import Change, blank_table, variant
from weighbridge.gates.dtype_preservation import listed
from weighbridge.limits import Doc, nearest
from weighbridge.model import Fields, Json, Offence, Outcome, SubjectKind, Verdict

# The fields that are compared; `tokens` and `merges` are lists, compared entry by entry.
FIELDS = (
    "architecture", "block_count", "embedding_length", "feed_forward_length", "context_length", "vocab_size",
    "head_count", "head_count_kv", "head_dim", "rope_base", "rope_base_local", "rope_dimensions", "rope_scaling",
    "rope_scaling_factor", "rope_original_context", "norm_epsilon", "activation", "expert_count", "expert_used_count",
    "sliding_window", "attn_logit_softcap", "final_logit_softcap", "tied_embeddings", "bos_token_id", "eos_token_id",
    "pad_token_id", "unk_token_id", "add_bos_token", "add_eos_token", "chat_template", "tokens", "merges",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """A field that is meant to differ."""

    field: Annotated[str, Doc("the field")]
    why: Annotated[str, Doc("why it is meant to differ")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What must agree, and what need not."""

    required: Annotated[tuple[str, ...], Doc("fields that must be compared", tight="up")] = (
        "block_count",
        "embedding_length",
    )
    may_differ: Annotated[tuple[Meant, ...], Doc("fields that are meant to differ, with the reason", tight="down")] = ()
    allow_missing: Annotated[tuple[str, ...], Doc("globs of fields that the import need not state", tight="down")] = ()
    allow_extra: Annotated[tuple[str, ...], Doc("globs of fields that the import alone may state", tight="down")] = ()


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Demand that every field that can be compared agrees."""
    rows = rows_of(evidence, "fields")
    looked = [str(row["name"]) for row in rows]
    broken = [(row, code) for row in rows if (code := _code(row, limits))]
    compared = [str(row["name"]) for row in rows if _compared(row, limits)]
    figures = _figures(rows, limits)
    if broken:
        held = len({*compared, *(str(row["name"]) for row, _ in broken)})
        return failed(_offences(broken), looked=looked, unit="fields", of=held, figures=figures)
    lacking = [name for name in limits.required if name not in compared]
    if lacking:
        return blocked("not-compared", figures, offences=_lacking(rows, lacking), of=len(rows))
    if not compared:
        return blocked("nothing-compared", figures)
    return passed(looked=looked, unit="fields", of=len(compared), figures=figures)


def _offences(broken: Sequence[tuple[Fields, str]]) -> list[Offence]:
    return [Offence(place=str(row["name"]), code=code, figures=_told(row)) for row, code in broken]


def _told(row: Fields) -> Fields:
    return {key: value for key, value in row.items() if key != "name"}


def _code(row: Fields, limits: Limits) -> str:
    name, one, other = str(row["name"]), bool(row["source_basis"]), bool(row["candidate_basis"])
    if row["why"] or _meant(name, limits) or not (one or other):
        return ""
    if not other:
        return "" if listed(name, limits.allow_missing) else "missing"
    if not one:
        return "" if listed(name, limits.allow_extra) else "extra"
    if row["source"] == row["candidate"]:
        return ""
    return "differs" if row["first_difference"] is None else "entries"


def _meant(name: str, limits: Limits) -> bool:
    return any(name == meant.field for meant in limits.may_differ)


def _compared(row: Fields, limits: Limits) -> bool:
    """Tell whether both sides were held against each other, as the promise needs it."""
    return (
        bool(row["source_basis"] and row["candidate_basis"]) and not row["why"] and not _meant(str(row["name"]), limits)
    )


def _lacking(rows: Sequence[Fields], names: Sequence[str]) -> list[Offence]:
    found = {str(row["name"]): str(row["why"]) for row in rows}
    told = {name: found.get(name) or "not both sides state it" for name in names}
    return [Offence(place=name, code="not-compared", figures={"why": why}) for name, why in told.items()]


def _figures(rows: Sequence[Fields], limits: Limits) -> Fields:
    """Tell how much was compared, and what was not."""
    compared = [row for row in rows if _compared(row, limits)]
    stated = [row for row in rows if row["source_basis"] or row["candidate_basis"]]
    return {
        "fields": len(rows),
        "compared": len(compared),
        "by_default": sum("default" in (row["source_basis"], row["candidate_basis"]) for row in compared),
        "not_compared": [f"{row['name']} ({row['why']})" for row in stated if row["why"]] or None,
        "meant": [f"{meant.field} ({meant.why})" for meant in limits.may_differ] or None,
        "one_sided": [str(row["name"]) for row in stated if not row["why"] and not _two_sided(row)] or None,
        "unset_on_both": len(rows) - len(stated),
    }


def _two_sided(row: Fields) -> bool:
    return bool(row["source_basis"] and row["candidate_basis"])


# --- Falsifiers: by rules of their own, so that a weakened rule of the judge cannot weaken them too -------------------


def _free(row: Fields, limits: Limits) -> bool:
    return not row["why"] and all(row["name"] != meant.field for meant in limits.may_differ)


def _stated(row: Fields, limits: Limits) -> dict[str, Json] | None:
    """Make both sides state the field, alike."""
    if not _free(row, limits):
        return None
    alike: Fields = {"source": 1, "candidate": 1, "source_basis": "reported", "candidate_basis": "default"}
    return {**row, **alike, "first_difference": None}


def _other(**changed: Json) -> Change[Limits]:
    def change(row: Fields, limits: Limits) -> Fields | None:
        stated = _stated(row, limits)
        return None if stated is None else {**stated, **changed}

    return change


def _silenced(side: str, allowed: str) -> Change[Limits]:
    def change(row: Fields, limits: Limits) -> Fields | None:
        stated = _stated(row, limits)
        return None if stated is None or _allowed(row, limits, allowed) else {**stated, **_silent(side)}

    return change


def _silent(side: str) -> dict[str, Json]:
    return {side: None, f"{side}_basis": ""}


def _allowed(row: Fields, limits: Limits, which: str) -> bool:
    return any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in getattr(limits, which))


def _needed(**changed: Json) -> Change[Limits]:
    return lambda row, limits: {**row, **changed} if row["name"] in limits.required else None


def _needed_once(side: str, allowed: str) -> Change[Limits]:
    """Silence one side of a required field that this side need not state."""

    def change(row: Fields, limits: Limits) -> Fields | None:
        silenced = row["name"] in limits.required and _allowed(row, limits, allowed)
        return {**row, **_silent(side)} if silenced else None

    return change


def _apart(row: Fields, limits: Limits) -> Fields | None:
    return None if limits.required else {**row, "why": "another form"}


def _meant_alone(row: Fields, limits: Limits) -> Fields | None:
    return None if limits.required or _free(row, limits) or row["why"] else dict(row)


def _required(name: str, change: Change[Limits], why: str) -> Falsifier[Limits]:
    return each_row(name, "not-compared", "fields", change, why=why, outcome=Outcome.BLOCKED)


def check(limits: Limits, _measure: object) -> list[str]:
    """Find names that are no field, and fields that must agree and may differ at once."""
    meant = [one.field for one in limits.may_differ]
    unknown = [name for name in (*limits.required, *meant) if name not in FIELDS]
    both = [name for name in meant if name in limits.required]
    return [
        *(f"{name!r} is no field of a configuration{nearest(name, FIELDS)}" for name in unknown),
        *(f"{name!r} is required to agree and meant to differ" for name in both),
    ]


NEVER = "no field is free to differ"
ENTRY: Json = {"index": 7, "source": "a", "candidate": "b"}

KIND = Kind(
    name="config-agreement",
    version=1,
    roles={"source": SubjectKind.CHECKPOINT, "candidate": SubjectKind.CHECKPOINT},
    needs={"fields": Need("model_config", of=("source", "candidate"))},
    limits=Limits,
    codes={
        "differs": Outcome.FAIL,
        "entries": Outcome.FAIL,
        "missing": Outcome.FAIL,
        "extra": Outcome.FAIL,
        "not-compared": Outcome.BLOCKED,
        "nothing-compared": Outcome.BLOCKED,
    },
    judge=judge,
    check=check,
    falsifiers=(
        each_row("another value", "differs", "fields", _other(candidate=2), why=NEVER),
        variant("a smaller value", "differs", _other(candidate=0), why=NEVER, need="fields"),
        each_row("another entry", "entries", "fields", _other(candidate=2, first_difference=ENTRY), why=NEVER),
        each_row("silent in the import", "missing", "fields", _silenced("candidate", "allow_missing"), why=NEVER),
        each_row("silent in the source", "extra", "fields", _silenced("source", "allow_extra"), why=NEVER),
        _required("a required field that cannot be compared", _needed(why="another form"), "no field is required"),
        _required("a required field that nobody states", _needed(source_basis="", candidate_basis=""),
                  "no field is required"),
        _required("a required field that the import leaves out", _needed_once("candidate", "allow_missing"),
                  "no required field may be missing"),
        _required("a required field that the source leaves out", _needed_once("source", "allow_extra"),
                  "no required field may be extra"),
        blank_table("no field that can be compared", _apart, why="a field is required", need="fields"),
        blank_table("only what is meant to differ", _meant_alone, why="a field is required, or none is meant to differ",
                    need="fields"),
    ),
)  # fmt: skip
