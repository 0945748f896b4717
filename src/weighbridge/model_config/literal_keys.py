"""Every key that a side states, as it stands there: compared with the same key of the same format, or noted as unread.

What no field of ours reads is never passed over: across formats it is a row that says why it was not compared. Pure.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from weighbridge.core import Json, replace, table
from weighbridge.model_config.model_keys import HUGGING_FACE, Fields, shortened
from weighbridge.quantities.checkpoints import UNREAD, ConfigField
from weighbridge.views.checkpoint import OF_THE_WHOLE, STRUCTURE, TEXT_PARTS, role_of

Keys: TypeAlias = Mapping[str, Json]  # of one side, by name
SIDES = "source", "candidate"
MAX_KEYS = 4096  # of one file; a longer one is compared as one value
TABLE = "model_config/literal_keys"


def is_list(key: str) -> bool:
    """Return whether a key stands for a list that is compared entry by entry."""
    return key in table(TABLE)["lists"]


def of_document(document: Mapping[str, Any] | None, place: str) -> dict[str, Json]:
    """Return the values of a parsed file by name, `PLACE:PATH`, nested objects by path; what is null is left out."""
    found = dict(_leaves(document or {}, f"{place}:"))
    return found if len(found) <= MAX_KEYS else {place: as_text(document)}


def _leaves(value: Mapping[str, Any], before: str) -> Iterator[tuple[str, Json]]:
    rules = table(TABLE) if value else {}
    for key, inner in value.items():
        name = f"{before}{key}"
        if inner is None or is_list(name):
            continue
        if isinstance(inner, Mapping) and name not in rules["whole"]:
            yield from _leaves(inner, f"{name}.")
        else:
            kinds = key in ("layer_types", "layers_block_type") and isinstance(inner, list)
            yield name, as_text([rules["layers"].get(str(kind), kind) for kind in inner] if kinds else inner)


def as_text(value: Any) -> Json:
    """Return a value that differs where the written one does: `true` is not 1; what is long becomes a digest."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    return shortened(value if isinstance(value, str) else json.dumps(value, sort_keys=True))


def key_rows(
    forms: Sequence[str], keys: Sequence[Keys], fields: Sequence[Fields], rows: Sequence[ConfigField], missing: str = ""
) -> list[ConfigField]:
    """Return a row for each key of either side that the `rows` of fields have not compared; `missing` says why not."""
    if forms[0] == forms[1]:
        return list(_literal(forms[0], keys, rows, missing))
    return [
        _row(name, **{side: value}, why=elsewhere(name))
        for side, one, stated in zip(SIDES, keys, fields, strict=True)
        for name, value in unread(one, stated).items()
    ]


def elsewhere(name: str) -> str:
    """Return where the other format keeps what a key says, or that no rule reads it."""
    return next((why for glob, why in table(TABLE)["elsewhere"].items() if fnmatchcase(name, glob)), UNREAD)


def unread(keys: Keys, fields: Fields) -> dict[str, Json]:
    """Return the keys of one side that none of its fields reads."""
    reads = _names([place for one in fields.values() for place in (one.read, *(read for _, read in one.also))], keys)
    return {name: value for name, value in keys.items() if name not in reads}


def _literal(form: str, keys: Sequence[Keys], rows: Sequence[ConfigField], unstated: str) -> Iterator[ConfigField]:
    unlike = [row for row in rows if row.source != row.candidate and not row.why]
    reads, unlike_reads = (
        (_names([row.source_read for row in some], keys[0]), _names([row.candidate_read for row in some], keys[1]))
        for some in (rows, unlike)
    )
    files = [{name.partition(":")[0] for name in side} if form == HUGGING_FACE else set() for side in keys]
    alone = files[0] ^ files[1]
    for file in sorted(alone):
        side, other = ("source", "import") if file in files[0] else ("candidate", "source")
        why = "" if role_of(file) == STRUCTURE else f"the {other} has no {file} beside it, or an empty one"
        yield _row(file, **{side: "stated"}, why=why)
    named = [_by_newest_name(side) if form == HUGGING_FACE else dict(zip(side, side, strict=True)) for side in keys]
    for newest in dict.fromkeys((*named[0], *named[1])):
        names = tuple(side.get(newest, "") for side in named)
        values = tuple(side.get(name) for side, name in zip(keys, names, strict=True))
        # A field may read no more of a key than its kind: what is written otherwise is a row all the same.
        by_fields = unlike_reads if all(names) and values[0] != values[1] else reads
        compared = all(not name or name in read for name, read in zip(names, by_fields, strict=True))
        if not compared and newest.partition(":")[0] not in alone:
            yield _pair(newest, names, values, unstated if form == HUGGING_FACE else "")


def _by_newest_name(keys: Keys) -> dict[str, str]:
    found = {name: name for name in keys}
    for name in keys:
        newest = name
        for old, new in table(TABLE)["renamed"]:
            newest = re.sub(old, new, newest)
        if newest not in found:
            found[newest] = found.pop(name)
    return found


def _pair(newest: str, names: Sequence[str], values: Sequence[Json], unstated: str) -> ConfigField:
    if all(names):
        return _row(names[0] if names[0] == names[1] else newest, source=values[0], candidate=values[1])
    stated = 0 if names[0] else 1
    side, silent = SIDES[stated], SIDES[1 - stated]
    known = next((value for old, value in table(TABLE)["taken"].items() if re.search(old, newest)), None)
    if known is None or not unstated:
        return _row(names[stated], **{side: values[stated]}, why=unstated.format("source" if stated else "import"))
    default: Any = {f"{silent}_read": "nothing said; the default", f"{silent}_basis": "default"}
    return replace(_row(names[stated], **{side: values[stated], silent: known}), **default)


def _names(places: Sequence[str], keys: Keys) -> set[str]:
    found = set()
    for place in places:
        file, _, path = place.partition(" ")
        whole, inner = [f"{file}:{path}", f"{file}:{path}.content"], [f"{file}:{part}.{path}" for part in TEXT_PARTS]
        names = [*whole, *inner] if path in OF_THE_WHOLE else [*inner, *whole]
        found.add(next((name for name in names if name in keys), place))
    return found


def _row(name: str, *, source: Json = None, candidate: Json = None, why: str = "") -> ConfigField:
    read = name.replace(":", " ", 1)
    sides: dict[str, Any] = {}
    for side, value in zip(SIDES, (source, candidate), strict=True):
        place, basis = ("stated nowhere", "") if value is None else (read, "reported")
        sides |= {side: value, f"{side}_read": place, f"{side}_basis": basis}
    return ConfigField(name=name, **sides, why=why, also=(), entries=None, differing=None, first_difference=None)
