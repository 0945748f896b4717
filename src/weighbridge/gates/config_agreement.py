"""config-agreement: do source and import say the same of their model: shapes, rotary positions, tokens, templates?

A wrong rope base alone breaks a model whose tensors are perfect. What one side states is compared with what the other
states, or what a loader takes where nothing is said; what cannot be compared is listed, and never counts as agreement.
Two sides of one format are compared key by key, too.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, Kind, Mutation, Need, blocked, codes, failed, passed, rows_of
from weighbridge.clauses.mutations import Breaks, Change
from weighbridge.core import Doc, Offence, SubjectKind, Verdict, dataclass, nearest, plain, replace
from weighbridge.gates.families.harmless_keys import CODE, harmless, harmless_of_packing
from weighbridge.quantities.checkpoints import CONFIG_FIELDS, CONFIG_LISTS, UNREAD, ConfigField, EntryDifference, is_key

FIELDS = (*CONFIG_FIELDS, *CONFIG_LISTS)
REQUIRED = ("block_count", "embedding_length")
METHOD = "config.json:quantization_config.quant_method"
SHOWN = 5  # keys of each file that are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """A field, or a key, that is meant to differ."""

    field: Annotated[str, Doc("the field, or the key as it is listed: FILE:PATH, or a key of a GGUF header")]
    why: Annotated[str, Doc("why it is meant to differ")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What must agree, and what need not."""

    required: Annotated[tuple[str, ...], Doc("fields that must be compared", tight="up")] = REQUIRED
    may_differ: Annotated[tuple[Meant, ...], Doc("fields that are meant to differ, with the reason", tight="down")] = ()
    allow_missing: Annotated[tuple[str, ...], Doc("globs of fields that the import need not state", tight="down")] = ()
    allow_extra: Annotated[tuple[str, ...], Doc("globs of fields that the import alone may state", tight="down")] = ()


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return whether every field that can be compared agrees, and every required one was compared."""
    rows = rows_of(evidence, "fields", ConfigField)
    meant = {one.field: one.why for one in limits.may_differ}
    stated = [row for row in rows if row.source_basis or row.candidate_basis]
    why = _why_harmless(rows)
    judged = [row for row in stated if not (row.why or row.name in meant or why(row.name))]
    compared = [row for row in judged if row.source_basis and row.candidate_basis]
    more: dict[str, Any] = {"unit": "fields", "figures": _figures(rows, stated, compared, limits)}
    broken = [(row, code) for row in judged if (code := _code(row, limits))]
    if broken:
        offences = [Offence(place=row.name, code=code, figures=plain(row)) for row, code in broken]
        known = {row.name for row in (*compared, *(row for row, _ in broken))}
        return failed(offences, looked=[row.name for row in rows], of=len(known), **more)
    names = {row.name for row in compared}
    lacking = {name: "not both sides state it" for name in limits.required if name not in names}
    lacking |= {row.name: row.why for row in rows if row.why and row.name in lacking}
    if lacking:
        offences = [Offence(place=name, code="not-compared", figures={"why": why}) for name, why in lacking.items()]
        return blocked("not-compared", more["figures"], offences=offences, of=len(rows))
    if not compared:
        return blocked("nothing-compared", more["figures"])
    return passed(looked=[row.name for row in rows], of=len(compared), **more)


def _figures(
    rows: Sequence[ConfigField], stated: Sequence[ConfigField], compared: Sequence[ConfigField], limits: Limits
) -> dict[str, Any]:
    unread = [row.name for row in stated if row.why == UNREAD]
    meant = {one.field: one.why for one in limits.may_differ}
    both = ((row, row.source_basis and row.candidate_basis) for row in stated if not row.why)
    why = _why_harmless(rows)
    differing = [row.name for row in stated if not row.why and row.name not in meant and _code(row, limits)]
    return {
        "fields": len(rows),
        "compared": len(compared),
        "by_default": sum("default" in (row.source_basis, row.candidate_basis) for row in compared),
        "not_compared": [f"{row.name} ({row.why})" for row in stated[::-1] if row.why not in ("", UNREAD)] or None,
        "unread": _by_file([name for name in unread if not harmless(name)]) or None,
        "harmless_unread": sum(bool(harmless(name)) for name in unread),
        "harmless": [f"{name} ({why(name)})" for name in differing if why(name)] or None,
        "also_said": [f"{row.name} also {said}" for row in stated for said in dict.fromkeys(row.also)] or None,
        "meant": [f"{name} ({why})" for name, why in meant.items()] or None,
        "one_sided": [row.name for row, known in both if not known and not harmless(row.name)] or None,
        "unset_on_both": len(rows) - len(stated),
    }


def _code(row: ConfigField, limits: Limits) -> str:
    if not row.candidate_basis:
        return "" if listed(row.name, limits.allow_missing) else "missing"
    if not row.source_basis:
        return "" if listed(row.name, limits.allow_extra) else "extra"
    if row.source == row.candidate:
        return ""
    return "differs" if row.first_difference is None else "entries"


def _why_harmless(rows: Sequence[ConfigField]) -> Callable[[str], str]:
    """Return what says why a difference decides nothing; where one method packed both, tensors do not tell all keys."""
    alike = any(row.name == METHOD and row.source and row.source == row.candidate for row in rows)
    why = harmless_of_packing if alike else harmless
    return lambda name: "" if why(name) == CODE else why(name)


def _by_file(names: Sequence[str]) -> list[str]:
    counted = []
    for file in dict.fromkeys(map(_file, names)):
        keys = [name.removeprefix(f"{file}:") for name in names if _file(name) == file]
        rest = [f"+{len(keys) - SHOWN} more"] if len(keys) > SHOWN else []
        counted.append(f"{len(keys)} key{'s' if len(keys) > 1 else ''} of {file}: {', '.join(keys[:SHOWN] + rest)}")
    return counted


def _file(name: str) -> str:
    return name.partition(":")[0] if ":" in name else "the header"


def check(limits: Limits, _measure: object) -> list[str]:
    """Return which names are no field, and which fields must agree and may differ at once."""
    meant = [one.field for one in limits.may_differ]
    unknown = [name for name in (*limits.required, *meant) if name not in FIELDS and not is_key(name)]
    both = [name for name in meant if name in limits.required]
    return [
        *(f"{name!r} is no field of a configuration{nearest(name, FIELDS)}" for name in unknown),
        *(f"{name!r} is required to agree and meant to differ" for name in both),
    ]


SILENT: dict[str, dict[str, Any]] = {side: {side: None, f"{side}_basis": ""} for side in ("source", "candidate")}
ENTRY = EntryDifference(index=7, source="a", candidate="b")
BLOCKED = ("not-compared", "nothing-compared")
NOT_REQUIRED, ALL_REQUIRED = "no such field is required", "a field is required, or none is left"
_breaks = Breaks(need="fields", row=ConfigField, blocked=BLOCKED, why="every field here is allowed to")


def _decides_nothing(row: ConfigField, limits: Limits) -> bool:
    free = harmless_of_packing(row.name) not in ("", CODE)
    return not row.why and (free or row.name in [one.field for one in limits.may_differ])


def _stated_but(allowed: str = "", **changed: Any) -> Change:
    """Make both sides state the field, alike but for this, unless `allowed` names it."""
    alike = {"source": 1, "candidate": 1, "source_basis": "reported", "candidate_basis": "default"}
    columns: dict[str, Any] = {**alike, "first_difference": None, **changed}

    def change(row: ConfigField, limits: Limits) -> dict[str, Any] | None:
        free = allowed and listed(row.name, getattr(limits, allowed))
        meant = free or row.name in [one.field for one in limits.may_differ]
        return None if meant or row.why or harmless(row.name) not in ("", CODE) else columns

    return change


def _required(allowed: str = "", **changed: Any) -> Change:
    """Change required fields, of which a side need not state those that `allowed` names."""

    def change(row: ConfigField, limits: Limits) -> dict[str, Any] | None:
        silent = not allowed or listed(row.name, getattr(limits, allowed))
        return changed if row.name in limits.required and silent else None

    return change


def _none_left(name: str, change: Change) -> Mutation[Limits]:
    def left(row: ConfigField, limits: Limits) -> ConfigField | None:
        return None if limits.required else change(row, limits)

    return _breaks.only(name, "nothing-compared", left, ALL_REQUIRED)


UNCOMPARED = {
    "a required field that cannot be compared": _required(why="another form"),
    "a required field that nobody states": _required(source_basis="", candidate_basis=""),
    "a required field that the import leaves out": _required("allow_missing", **SILENT["candidate"]),
    "a required field that the source leaves out": _required("allow_extra", **SILENT["source"]),
}

KIND = Kind(
    name="config-agreement", version=6, roles={"source": SubjectKind.CHECKPOINT, "candidate": SubjectKind.CHECKPOINT},
    needs={"fields": Need("model_config", of=("source", "candidate"))}, limits=Limits,
    codes=codes("differs", "entries", "missing", "extra", blocked=BLOCKED), judge=judge, check=check,
    mutations=(
        _breaks("another value", "differs", _stated_but(candidate=2)),
        _breaks("a smaller value", "differs", _stated_but(candidate=0)),
        _breaks("another entry", "entries", _stated_but(candidate=2, first_difference=ENTRY)),
        _breaks("silent in the import", "missing", _stated_but("allow_missing", **SILENT["candidate"])),
        _breaks("silent in the source", "extra", _stated_but("allow_extra", **SILENT["source"])),
        *(_breaks(name, "not-compared", change, NOT_REQUIRED) for name, change in UNCOMPARED.items()),
        _none_left("no field that can be compared", lambda row, _: replace(row, why="another form")),
        _none_left("only what is meant to differ", lambda row, limits: row if _decides_nothing(row, limits) else None),
    ),
)  # fmt: skip
