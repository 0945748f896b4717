"""model_config: what two sides say of one model beside its tensors, one row a field, whether it is stated or not."""

from collections.abc import Sequence
from typing import Any

from weighbridge.core import Basis, Fields, Json, Measurement, SubjectKind, Unmeasured, replace
from weighbridge.model_config.header_pairs import expected, paired, shortest
from weighbridge.model_config.literal_keys import key_rows
from weighbridge.model_config.model_defaults import all_known, common, default, incomparable, lost, optional, own_value
from weighbridge.model_config.model_description import ModelDescription, describe_model
from weighbridge.model_config.model_keys import GGUF, HUGGING_FACE, Stated
from weighbridge.model_config.vocabulary import Vocabulary, Walk, compare_merges, compare_pieces
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.checkpoints import CONFIG_FIELDS, CONFIG_LISTS, ConfigField, FieldKind
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name, table
from weighbridge.views.checkpoint import CONFIG

QUANTITY = "model_config"
CLIP = "clip"  # the architecture of every mmproj file
NOTHING = Stated(value=None, read="stated nowhere", basis="")
TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "mask_token_id")
OF_A_TOKENIZER = {"add_bos_token", "add_eos_token", "chat_template", "tokenizer_model", "token_types"}
OF_A_TOKENIZER |= {*TOKEN_IDS, *CONFIG_LISTS}
OTHER_VERSION = "the {} does not state it, and another version of transformers wrote it"
KEPT = 64  # entries of each list
# Fields that defaults of others are computed from, and those others.
FEEDING = ("embedding_length", "head_count", "head_dim", "context_length", "vocab_size", "rope_scaling")
FED = (
    *("head_dim", "value_dim", "head_count_kv", "rope_dimensions", "rope_original_context", "rope_scaling_factor"),
    *("feed_forward_length", *TOKEN_IDS),
)


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Read both sides, and describe every field; refuse with `config`, `file-…` or `gguf-…` what cannot be read."""
    source, candidate = describe_model(views[0]), describe_model(views[1])
    sides, code, why = (source, candidate), "", ""
    empty = [side.sized is False and not any(name.startswith(f"{CONFIG}:") for name in side.keys) for side in sides]
    if source.silent and candidate.silent:
        code, why = "config-none", "neither side says anything of its model beside the tensors"
    elif source.silent or candidate.silent:
        code, why = "config-one-sided", f"no config.json beside the {'source' if source.silent else 'import'}"
    elif not (source.sized or candidate.sized) and any(empty):
        code = "config-empty"
        why = f"config.json beside the {'source' if empty[0] else 'import'} says nothing of the model"
    elif (source.model.architecture == CLIP) is not (candidate.model.architecture == CLIP):
        code, why = "config-one-sided", "an mmproj file says nothing of the text model"
    elif source.home and source.home == candidate.home:
        code, why = "config-same", "both sides read one and the same config.json, which always agrees with itself"
    if code:
        remedy = "bind two folders, each with its own config.json, or a folder and a GGUF file"
        return Unmeasured(code=code, why=why, remedy=remedy)
    rows = [_row(name, source, candidate) for name in (*CONFIG_FIELDS, *CONFIG_LISTS)]
    rows += _keys(source, candidate, rows)
    return table(QUANTITY, rows, at=f"{source.model.form} -> {candidate.model.form}", basis=Basis.REPORTED)


def _keys(one: ModelDescription, other: ModelDescription, rows: Sequence[ConfigField]) -> list[ConfigField]:
    forms, fields = (one.model.form, other.model.form), (one.model.fields, other.model.fields)
    keys: list[dict[str, Json]] = [{**side.keys} for side in (one, other)]
    for side, stated in zip((one, other), keys, strict=True):
        if forms[0] != forms[1]:  # how images and sounds are prepared is said by its file alone
            files = (name.partition(":")[0] for name in side.beside or ())
            stated.update({file: "stated" for file in files if "processor_config" in file})
        elif one.beside is not None and other.beside is not None:
            stated.update(side.beside or {})
    return paired(key_rows(forms, keys, fields, rows, OTHER_VERSION if _resaved(one, other) else ""), one, other)


def _resaved(one: ModelDescription, other: ModelDescription) -> bool:
    """Return whether two versions of transformers wrote the two sides, which leave out what they take anyway."""
    version = "config.json:transformers_version"
    both = one.model.form == other.model.form == HUGGING_FACE
    # No version leaves out every size.
    return both and one.keys.get(version) != other.keys.get(version) and one.sized is other.sized


def _row(name: str, source: ModelDescription, candidate: ModelDescription) -> ConfigField:
    why = _lacking(name, source, candidate) or incomparable(name, source.model, candidate.model)
    if name in CONFIG_LISTS:
        return _list(name, source, candidate, why)
    said = source.model.fields.get(name), candidate.model.fields.get(name)
    one, other = said
    if not why:
        one = one or (said[1] and (default(name, source.model) or _of_a_file(name, candidate, source)))
        other = other or (said[0] and (default(name, candidate.model) or _of_a_file(name, source, candidate)))
        if None in (one, other) and any(side and side.basis == "derived" for side in (one, other)):
            one = other = None  # nobody states it
    across = source.model.form != candidate.model.form
    if not why and (one is None) != (other is None):
        why = _unstated(name, *(("source", source, candidate) if one is None else ("import", candidate, source)))
    # GGUF's numbers are of 32 bits, its activations are families, and its architectures kinds of models.
    here, there = one or NOTHING, other or NOTHING
    if CONFIG_FIELDS[name] is FieldKind.NUMBER and GGUF in (source.model.form, candidate.model.form):
        here, there = (replace(side, value=shortest(side.value)) for side in (here, there))
    if across:
        models = source.model, candidate.model
        here, there = (replace(side, value=common(name, side.value, *models)) for side in (here, there))
    here, there = _following(here, there.value), _following(there, here.value)
    loss = lost(name, there.value, source.model, candidate.model) if across and here.value != there.value else ""
    if loss and other is None:  # where the source says it shows what is missing
        here = replace(here, read=f"{here.read}; {loss}")
    elif loss:
        there = replace(there, read=f"{there.read}; {loss}")
    return _field(name, here, there, why)


def _of_a_file(name: str, file: ModelDescription, other: ModelDescription) -> Stated | None:
    """Return what a field of a GGUF file should say that nobody else states."""
    if file.model.form != GGUF or other.model.form == GGUF or name not in file.model.fields:
        return None
    return expected(file.model.fields[name].read, file, other) or own_value(name, file.model)


def _unstated(name: str, what: str, silent: ModelDescription, other: ModelDescription) -> str:
    """Return why nothing is missing from a side that does not state a field, or nothing where it should."""
    if silent.model.form == other.model.form:
        return OTHER_VERSION.format(what) if _resaved(silent, other) else ""
    silent_config = silent.model.form != GGUF and name not in OF_A_TOKENIZER and silent.sized is not False
    if silent_config and all_known(other.model):
        return ""  # no converter wrote it
    unasked = f"the {what} does not state it, and its loader is not asked"
    return unasked if optional(name) or silent_config else ""


def _field(name: str, one: Stated, other: Stated, why: str, **more: Any) -> ConfigField:
    found: dict[str, Any] = {"entries": None, "differing": None, "first_difference": None, **more}
    found |= {"source": one.value, "source_read": one.read, "source_basis": one.basis}
    found |= {"candidate": other.value, "candidate_read": other.read, "candidate_basis": other.basis}
    also = (f"{value} ({read})" for side in (one, other) for value, read in side.also if value != side.value)
    return ConfigField(name=name, why=why, also=tuple(also), **found)


def _lacking(name: str, source: ModelDescription, candidate: ModelDescription) -> str:
    """Return that a directory has no tokenizer, so that nothing about it can be missing from the other side."""
    for side, what in ((source, "source"), (candidate, "import")):
        if name in OF_A_TOKENIZER and side.model.form != GGUF and side.vocabulary is None:
            return "" if name in side.model.fields else f"the {what} has no tokenizer beside it"
    return ""


def _following(side: Stated, value: Json) -> Stated:
    """Where a side says a field in two ways, take the one that the other side says, too."""
    read = next((read for said, read in side.also if said == value), None)
    if side.value == value or read is None:
        return side
    others = ((side.value, side.read), *(pair for pair in side.also if pair[1] != read))
    return Stated(value=value, read=read, basis=side.basis, also=others)


def _list(name: str, source: ModelDescription, candidate: ModelDescription, why: str) -> ConfigField:
    one, other = source.vocabulary, candidate.vocabulary
    for side in (source, candidate):
        kind = side.model.tokenizer if side.model.form == GGUF else ""
        keeps_none = name == "merges" and kind not in ("", "gpt2")
        why = why or (side.vocabulary.why if side.vocabulary is not None else "")
        why = why or (f"a GGUF tokenizer of the kind {kind} keeps no merges" if keeps_none else "")
    if why or one is None or other is None or not (_count(name, one) and _count(name, other)):
        return _field(name, _stated(name, one), _stated(name, other), why)
    if name == "merges":
        found = compare_merges(one, other)
    else:
        file = next((side for side in (candidate, source) if side.model.form == GGUF), None)
        across = file is not None and source.model.form != candidate.model.form
        kind = file.model.tokenizer if file is not None else ""
        found = compare_pieces(one, other, file=file.vocabulary if across and file else None, kind=kind)
    both = zip(found.digests, found.entries, (one, other), strict=True)
    here, there = (Stated(value=digest, read=f"{entries} in {_place(name, side)}") for digest, entries, side in both)
    entries = max(found.entries)
    return _field(name, here, there, "", entries=entries, differing=found.differing, first_difference=found.first)


def _count(name: str, vocabulary: Vocabulary) -> int:
    return vocabulary.count if name == "tokens" else vocabulary.merge_count


def _place(name: str, vocabulary: Vocabulary) -> str:
    return vocabulary.read if name == "tokens" else vocabulary.read.replace("tokens", "merges")


def _stated(name: str, vocabulary: Vocabulary | None) -> Stated:
    """Return a list that is not compared, by its length."""
    if vocabulary is None or not _count(name, vocabulary):
        return NOTHING
    return Stated(value=f"{_count(name, vocabulary)} entries", read=_place(name, vocabulary))


def extent(views: Views, _options: Fields) -> int:
    """Count the fields, and the keys that no field compares."""
    source, candidate = describe_model(views[0]), describe_model(views[1])
    rows = [_row(name, source, candidate) for name in CONFIG_FIELDS]
    return len(rows) + len(CONFIG_LISTS) + len(_keys(source, candidate, rows))


def canary(views: Views, options: Fields, measurement: Measurement) -> Canary | NoCanary:
    """Change the last field that both sides agree on, else that is compared, and the last entry of each list."""
    source, candidate = describe_model(views[0]), describe_model(views[1])
    rows = rows_of(measurement, ConfigField)
    compared = (row for row in rows if row.source_basis and not row.why and not row.also)
    both = sorted(compared, key=lambda row: row.source == row.candidate)  # a switch that differs would then agree
    names = [row.name for row in both if row.name in candidate.model.fields]
    alone = [name for name in names if name not in FEEDING]  # no default depends on these
    name = next(iter((alone or names)[::-1]), None)
    lists = {row.name for row in rows if row.differing == 0 and row.entries}
    if name is None and not lists:
        keys = [row.name for row in rows if row.name in candidate.keys and row.source_basis and not row.why]
        if not keys:
            return NoCanary("nothing that is compared was read from the import")
        damaged = replace(candidate, keys={**candidate.keys, keys[-1]: "damaged"})
        known: dict[str, Any] = {"name": "the last key changed", "place": keys[-1], "views": (source, damaged)}
        return Canary(**known, seen=lambda found: rows_by_name(found)[keys[-1]].candidate == "damaged")
    one, other = source.vocabulary, candidate.vocabulary
    if one is not None and other is not None:  # cut to their last entries, so that the trial costs little
        first = max(min(one.count, other.count) - KEPT, 0)
        merge = max(min(one.merge_count, other.merge_count) - KEPT, 0)
        source = replace(source, vocabulary=replace(one, first=first, first_merge=merge))
        candidate = replace(candidate, vocabulary=replace(other, first=first, first_merge=merge))
    broken = source, _changed(candidate, name, lists)
    before = rows_by_name(measure((source, candidate), options))
    passed_over = FED if name in FEEDING else ()
    places = [place for place in before if place == name or place not in passed_over]

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        alike = (_shows(after[place], before[place], name, lists, broken[1]) for place in places)
        return after.keys() == before.keys() and all(alike)

    place = max(lists) if name is None else name
    return Canary(name="the last field and the last entries changed", place=place, views=broken, seen=seen)


def _shows(after: ConfigField, row: ConfigField, name: str | None, lists: set[str], broken: ModelDescription) -> bool:
    """Return whether a row says what was changed, and no more."""
    # What a row says of a known loss follows from values of others, too.
    after = replace(after, source_read=row.source_read, candidate_read=row.candidate_read)
    if row.name == name:
        return after == replace(row, candidate=broken.model.fields[name].value)
    if row.name not in lists or broken.vocabulary is None:
        return after == row
    other_digest = after.candidate != row.candidate and after.source == row.source
    first, last = after.first_difference, _count(row.name, broken.vocabulary) - 1
    return other_digest and after.differing == 1 and first is not None and first.index == last


def _changed(side: ModelDescription, name: str | None, lists: set[str]) -> ModelDescription:
    fields = dict(side.model.fields)
    if name is not None:
        was, kind = fields[name].value, CONFIG_FIELDS[name]
        others: dict[FieldKind, Json] = {FieldKind.COUNT: was + 1 if isinstance(was, int) else 7}
        others |= {FieldKind.NUMBER: 8192.0 if was == 4096.0 else 4096.0, FieldKind.SWITCH: not was}
        value = others.get(kind, "damaged")
        fields[name] = replace(fields[name], value=value, also=tuple((value, read) for _, read in fields[name].also))
    vocabulary = side.vocabulary
    if vocabulary is not None and "tokens" in lists:
        vocabulary = replace(vocabulary, walk=_marked(vocabulary.walk, vocabulary.count - 1))
    if vocabulary is not None and "merges" in lists:
        vocabulary = replace(vocabulary, merges=_marked(vocabulary.merges, vocabulary.merge_count - 1))
    return replace(side, model=replace(side.model, fields=fields), vocabulary=vocabulary)


def _marked(walk: Walk, last: int) -> Walk:
    return lambda start: (entry if at != last else (entry or b"") + b"?" for at, entry in enumerate(walk(start), start))


KINDS = (SubjectKind.CHECKPOINT, SubjectKind.CHECKPOINT)
VERIFIER = Verifier(quantity=QUANTITY, kinds=KINDS, measure=measure, extent=extent, canary=canary)
