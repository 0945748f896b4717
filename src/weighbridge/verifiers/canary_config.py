"""Change one field, the last piece and the last merge of what a side says of its model, without touching a file.

Vocabularies are cut to their last entries first, so that the trial costs little whatever their size. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from weighbridge.model import Json, Measurement, Unmeasured
from weighbridge.model_config.model_description import ModelDescription
from weighbridge.model_config.model_fields import FIELDS, Kind
from weighbridge.model_config.vocabulary import Walk
from weighbridge.quantities.checkpoint import ConfigField
from weighbridge.verifiers.verifier import Canary, NoCanary, rows_by_name

KEPT = 64  # entries of each list
MARK = b"?"
# Fields that defaults of others are computed from, and those others.
FEEDING = ("embedding_length", "head_count", "head_dim", "context_length", "vocab_size", "rope_scaling")
FED = (
    "head_dim", "head_count_kv", "rope_dimensions", "rope_original_context", "rope_scaling_factor",
    "feed_forward_length", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id",
)  # fmt: skip

Measure = Callable[[tuple[ModelDescription, ModelDescription]], Measurement | Unmeasured]


def damage(
    source: ModelDescription, candidate: ModelDescription, rows: Sequence[ConfigField], measure: Measure
) -> Canary | NoCanary:
    """Overlay the candidate's side: the last field that it states and that is compared, and the last of each list."""
    name = _chosen(rows, candidate)
    lists = {row.name for row in rows if row.differing == 0 and row.entries}
    if name is None and not lists:
        return NoCanary("nothing that is compared was read from the import")
    cut = _cut(source, candidate)
    broken = cut[0], _changed(cut[1], name, lists)
    before = rows_by_name(measure(cut))
    passed_over = FED if name in FEEDING else ()

    def seen(found: Measurement | Unmeasured) -> bool:
        told = rows_by_name(found)
        return told.keys() == before.keys() and all(
            _shows(told[place], row, name, lists, broken[1])
            for place, row in before.items()
            if place == name or place not in passed_over
        )

    place = name if name is not None else max(lists)
    return Canary(name="the last field and the last entries changed", place=place, views=broken, seen=seen)


def _shows(told: ConfigField, row: ConfigField, name: str | None, lists: set[str], broken: ModelDescription) -> bool:
    """Tell whether a row says what was changed, and no more."""
    if row.name == name:
        return told == replace(row, candidate=broken.model.fields[name].value)
    if row.name not in lists or broken.vocabulary is None:
        return told == row
    last = (broken.vocabulary.count if row.name == "tokens" else broken.vocabulary.merge_count) - 1
    other_digest = told.candidate != row.candidate and told.source == row.source
    first = told.first_difference
    return other_digest and told.differing == 1 and first is not None and first.index == last


def _chosen(rows: Sequence[ConfigField], candidate: ModelDescription) -> str | None:
    """Choose the last compared field that the import itself states, rather one that no default depends on."""
    names = [
        row.name
        for row in rows
        if row.name in candidate.model.fields and row.source_basis and not row.why and not row.also
    ]
    alone = [name for name in names if name not in FEEDING]
    return next(iter((alone or names)[::-1]), None)


def _cut(source: ModelDescription, candidate: ModelDescription) -> tuple[ModelDescription, ModelDescription]:
    one, other = source.vocabulary, candidate.vocabulary
    if one is None or other is None:
        return source, candidate
    first = max(min(one.count, other.count) - KEPT, 0)
    merge = max(min(one.merge_count, other.merge_count) - KEPT, 0)
    return (
        replace(source, vocabulary=replace(one, first=first, first_merge=merge)),
        replace(candidate, vocabulary=replace(other, first=first, first_merge=merge)),
    )


def _changed(side: ModelDescription, name: str | None, lists: set[str]) -> ModelDescription:
    fields = dict(side.model.fields)
    if name is not None:
        fields[name] = replace(fields[name], value=_other(name, fields[name].value), also=())
    vocabulary = side.vocabulary
    if vocabulary is not None and "tokens" in lists:
        vocabulary = replace(vocabulary, walk=_marked(vocabulary.walk, vocabulary.count - 1))
    if vocabulary is not None and "merges" in lists:
        vocabulary = replace(vocabulary, merges=_marked(vocabulary.merges, vocabulary.merge_count - 1))
    return replace(side, model=replace(side.model, fields=fields), vocabulary=vocabulary)


def _other(name: str, value: Json) -> Any:
    match FIELDS[name]:
        case Kind.COUNT:
            return value + 1 if isinstance(value, int) else 7
        case Kind.NUMBER:
            return 8192.0 if value == 4096.0 else 4096.0
        case Kind.SWITCH:
            return not value
    return "damaged"


def _marked(walk: Walk, last: int) -> Walk:
    """Put a mark behind one entry."""

    def marked(start: int) -> Iterator[bytes | None]:
        return (entry if at != last else (entry or b"") + MARK for at, entry in enumerate(walk(start), start))

    return marked
