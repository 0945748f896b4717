"""What a key of a GGUF header should say: by the other side's own key, the file's tensors, or the model's family."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weighbridge.core import Json, dataclass, field, np, replace, table
from weighbridge.model_config.literal_keys import as_text
from weighbridge.model_config.model_defaults import all_known
from weighbridge.model_config.model_description import ModelDescription
from weighbridge.model_config.model_keys import GGUF, Stated
from weighbridge.quantities.checkpoints import UNREAD, ConfigField
from weighbridge.views.checkpoint import CONFIG, TEXT_PARTS

PARTS = (*(f"{part}." for part in TEXT_PARTS), "thinker_config.text_config.", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Where else a key's value stands; the first place that is there counts."""

    config: tuple[str, ...] = ()
    words: Mapping[str, Json] = field(default_factory=dict)  # what a word of the configuration is in the header
    entries: int = 0  # of a list, which zeros fill up
    count: bool = False  # whether the length of a list is meant
    of: Mapping[str, Json] = field(default_factory=dict)  # by `model_type`
    shape: tuple[str, int] | None = None  # a tensor of the first layer that has it, and its dimension
    before: str = ""  # the count of layers before the first that has this tensor
    value: Json = None  # where nothing is said


def paired(rows: Sequence[ConfigField], source: ModelDescription, candidate: ModelDescription) -> list[ConfigField]:
    """Return rows of keys, those of a header with what they should say; a key that says it needs no row of its own."""
    sides = (candidate, "candidate", source, "source"), (source, "source", candidate, "candidate")
    found, used = {}, set()
    for file, there, other, here in sides if source.model.form != candidate.model.form else ():
        for row in rows if file.model.form == GGUF else ():
            if row.name in file.keys and (known := expected(row.name, file, other)) is not None:
                said: dict[str, Any] = {here: shortest(known.value), there: shortest(getattr(row, there)), "why": ""}
                said |= {f"{here}_read": known.read, f"{here}_basis": known.basis}
                found[row.name] = replace(row, **said)
                used.add(known.read.replace(" ", ":", 1))
            elif row.why == UNREAD and row.name.startswith(f"{file.model.architecture}.") and all_known(file.model):
                found[row.name] = replace(row, why="")  # no converter wrote it
    return [found.get(row.name, row) for row in rows if row.name not in used]


def expected(key: str, file: ModelDescription, other: ModelDescription) -> Stated | None:
    """Return what a key of a GGUF file should say, and where that stands; None where nobody knows."""
    known = table("model_config/header_pairs")["keys"]
    said = known.get(key, known.get(key.removeprefix(f"{file.model.architecture}.")))
    return next(_places(Row(**said), file.model.tensors, other), None) if said else None


def _places(row: Row, tensors: Mapping[str, tuple[int, ...]], other: ModelDescription) -> Iterator[Stated]:
    for name in (name for key in row.config for part in PARTS if (name := f"{CONFIG}:{part}{key}") in other.keys):
        value, each = other.keys[name], _entries(other.keys[name])
        if row.count:
            value = len(each)
        elif each:
            same = not row.entries and all(one == each[0] for one in each)
            value = as_text(each[0] if same else [*each, *[0] * (row.entries - len(each))])
        yield Stated(value=row.words.get(str(value), value), read=name.replace(":", " ", 1))
    if other.model.architecture in row.of:
        value, read = as_text(row.of[other.model.architecture]), f"the family {other.model.architecture}"
        yield Stated(value=value, read=read, basis="default")
    if row.shape is not None and (layers := _layers(tensors, row.shape[0])):
        name = f"blk.{layers[0]}.{row.shape[0]}"
        yield Stated(value=tensors[name][row.shape[1]], read=f"the shape of {name}", basis="derived")
    if row.before and (count := len(_layers(tensors, "attn_norm.weight"))):
        first = next(iter(_layers(tensors, row.before)), count)
        yield Stated(value=first, read=f"layers before the first with {row.before}", basis="derived")
    if row.value is not None:
        yield Stated(value=as_text(row.value), read="nothing said; the default", basis="default")


def _entries(value: Json) -> list[Json]:
    with contextlib.suppress(ValueError):
        found = json.loads(value) if isinstance(value, str) and value.startswith("[") else []
        return found if isinstance(found, list) else []
    return []


def _layers(tensors: Mapping[str, Any], name: str) -> list[int]:
    found = (re.fullmatch(rf"blk\.(\d{{1,6}})\.{re.escape(name)}", one) for one in tensors)
    return sorted(int(one[1]) for one in found if one)


def shortest(value: Any) -> Any:
    """Round a float to 32 bits, and give the shortest decimal that names the result; beyond them it stays."""
    with np.errstate(over="ignore"):
        narrow = np.float32(value) if isinstance(value, float) else np.float32("nan")
    return float(str(narrow)) if np.isfinite(narrow) else value
