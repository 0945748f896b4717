"""Every key that a side states, as it stands there: held against the same key of the same format, or told as unread.

A field of ours reads a few keys under many names. What none of them reads is never passed over: between two sides of
one format it is compared literally; across formats it is a row that says why it was not compared. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from weighbridge.model import Json
from weighbridge.model_config.model_keys import HUGGING_FACE, SHOWN, Fields
from weighbridge.quantities.checkpoints import UNREAD, ConfigField

MAX_KEYS = 4096  # of one file; a longer one is compared as one value
WHOLE = {  # thousands of keys, or rules that are read as one, are one value each
    "tokenizer_config.json:added_tokens_decoder",
    *(f"tokenizer.json:{key}" for key in ("added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder")),
}
LISTS = {"tokenizer.json:model.vocab", "tokenizer.json:model.merges", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"}
INNER = "text_config."

# Where the other format keeps what a key says, by globs: llama.cpp's converter computes tensors from some keys.
IN_FREQUENCIES = "converters compute rope_freqs.weight from it, compared as a tensor"
BIASES = "biases are tensors, and compared as such"
IN_FACTORS = "a tensor of a GGUF file, and compared as one"
ELSEWHERE: Mapping[str, str] = {
    "config.json:*attention_bias": BIASES, "config.json:*mlp_bias": BIASES,
    "*.low_freq_factor": IN_FREQUENCIES, "*.high_freq_factor": IN_FREQUENCIES,
    "*.short_factor": IN_FACTORS, "*.long_factor": IN_FACTORS,
    "tokenizer.ggml.scores": "scores lie in a sentencepiece model, and are not compared",
    "tokenizer.ggml.pre": "a directory names no pre-tokenizer: converters know it by what it makes of a text",
    "tokenizer.ggml.token_type": "a directory states no types of tokens: converters guess them from added tokens",
    "tokenizer.json:pre_tokenizer": "GGUF names a pre-tokenizer, which is not held against the rules of this one",
    "tokenizer.json:normalizer": "GGUF keeps no normalizer, only what a loader does for its kind of tokenizer",
    "tokenizer.json:decoder": "GGUF keeps no decoder, only what a loader does for its kind of tokenizer",
}  # fmt: skip


def of_document(document: Mapping[str, Any] | None, place: str) -> dict[str, Json]:
    """Return the values of a parsed file by name, `PLACE:PATH`, nested objects by path; what is null is left out."""
    found = dict(_leaves(document or {}, f"{place}:"))
    return found if len(found) <= MAX_KEYS else {place: as_text(document)}


def _leaves(value: Mapping[str, Any], before: str) -> Iterator[tuple[str, Json]]:
    for key, inner in value.items():
        name = f"{before}{key}"
        if isinstance(inner, Mapping) and name not in WHOLE and name not in LISTS:
            yield from _leaves(inner, f"{name}.")
        elif inner is not None and name not in LISTS:
            yield name, as_text(inner)


def as_text(value: Any) -> Json:
    """Return a value that differs where the written one does: `true` is not 1; what is long becomes a digest."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    told = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if len(told) <= SHOWN:
        return told
    return f"{told[:20]}… sha256:{hashlib.sha256(told.encode('utf-8', 'surrogatepass')).hexdigest()}"


def key_rows(
    forms: tuple[str, str], keys: Sequence[Mapping[str, Json]], fields: Sequence[Fields], rows: Sequence[ConfigField]
) -> list[ConfigField]:  # fmt: skip
    """Return a row for each key of either side that the `rows` of fields have not compared."""
    if forms[0] == forms[1]:
        return list(_literal(forms[0], keys, rows))
    return [
        _row(name, **{side: value}, why=elsewhere(name))
        for side, stated, told in zip(("source", "candidate"), keys, fields, strict=True)
        for name, value in unread(stated, told).items()
    ]  # fmt: skip


def elsewhere(name: str) -> str:
    """Return where the other format keeps what a key says, or that no rule reads it."""
    return next((why for glob, why in ELSEWHERE.items() if fnmatchcase(name, glob)), UNREAD)


def unread(keys: Mapping[str, Json], fields: Fields) -> dict[str, Json]:
    """Return the keys of one side that none of its fields reads."""
    reads = _names([place for one in fields.values() for place in (one.read, *(read for _, read in one.also))], keys)
    return {name: value for name, value in keys.items() if name not in reads}


def _literal(form: str, keys: Sequence[Mapping[str, Json]], rows: Sequence[ConfigField]) -> Iterator[ConfigField]:
    compared = [row for row in rows if not row.why]
    unlike = [row for row in compared if row.source != row.candidate]
    reads, told = (
        (_names([row.source_read for row in some], keys[0]), _names([row.candidate_read for row in some], keys[1]))
        for some in (compared, unlike)
    )
    files = [{_file(name) for name in side} if form == HUGGING_FACE else set() for side in keys]
    for file in sorted(files[0] ^ files[1]):
        side, other = ("source", "import") if file in files[0] else ("candidate", "source")
        yield _row(file, **{side: "stated"}, why=f"the {other} has no {file} beside it")
    alone = files[0] ^ files[1]
    for name in dict.fromkeys((*keys[0], *keys[1])):
        # A field may read no more of a key than its kind: what is written otherwise is told all the same.
        otherwise = name in keys[0] and name in keys[1] and keys[0][name] != keys[1][name]
        by_fields = told if otherwise else reads
        held = all(name not in side or name in read for side, read in zip(keys, by_fields, strict=True))
        if not held and _file(name) not in alone:
            yield _row(name, source=keys[0].get(name), candidate=keys[1].get(name))


def _file(name: str) -> str:
    return name.partition(":")[0]


def _names(places: Sequence[str], keys: Mapping[str, Json]) -> set[str]:
    """Return the names of what was read; a text model's own part comes before what stands around it."""
    found = set()
    for place in places:
        file, _, path = place.partition(" ")
        names = f"{file}:{INNER}{path}", f"{file}:{path}", f"{file}:{path}.content", place
        found.add(next((name for name in names if name in keys), place))
    return found


def _row(name: str, *, source: Json = None, candidate: Json = None, why: str = "") -> ConfigField:
    read = name.replace(":", " ", 1)
    told = {
        side: (value, read if value is not None else "stated nowhere", "reported" if value is not None else "")
        for side, value in (("source", source), ("candidate", candidate))
    }
    return ConfigField(
        name=name, source=told["source"][0], candidate=told["candidate"][0], source_read=told["source"][1],
        candidate_read=told["candidate"][1], source_basis=told["source"][2], candidate_basis=told["candidate"][2],
        why=why, also=(), entries=None, differing=None, first_difference=None,
    )  # fmt: skip
