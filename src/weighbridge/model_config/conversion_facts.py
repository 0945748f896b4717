"""What llama.cpp's converter writes of its own, and what it loses: `conversion_facts.yaml`, one row a fact."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from weighbridge.core import Json, dataclass, table
from weighbridge.model_config.model_keys import Model, Stated, head_dim

CONVERTER = "of llama.cpp's converter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a converter does with fields of some architectures, with its line."""

    of: tuple[str, ...]
    fields: tuple[str, ...]
    why: str
    line: str
    unsaid: bool = False
    makes: tuple[tuple[str, Any], ...] = ()
    whose: str = ""
    said: Json = None

    @property
    def text(self) -> str:
        """Return the reason, with the converter's line."""
        return f"{self.why} ({self.line} {CONVERTER})"

    def made(self, file: Model) -> list[Json]:
        """Return what the file then has: multiples of its fields, or values as they are."""
        numbers: dict[str, Json] = {key: one.value for key, one in file.fields.items()}
        numbers |= {"": 1, "head_dim": head_dim(file.fields)}
        return [times * one for key, times in self.makes if isinstance(one := numbers.get(key), (int, float))]


def written(name: str, file: Model, other: Model) -> str:
    """Return why this field of a GGUF file is the converter's own and not compared; nothing where it is another's."""
    fact = _facts("written").get((file.architecture, name))
    if fact is None or (fact.unsaid and name in other.fields):
        return ""
    own = not fact.makes or name not in file.fields or file.fields[name].value in fact.made(file)
    return fact.text if own else ""


@functools.cache
def _facts(kind: str) -> Mapping[tuple[str, str], Fact]:
    facts = [Fact(**row) for row in table("model_config/conversion_facts")[kind]]
    return {(one, field): fact for fact in facts for one in fact.of for field in fact.fields}


def own_value(name: str, file: Model) -> Stated | None:
    """Return the one value that the converter writes in a field of its own, where there is one."""
    fact = _facts("written").get((file.architecture, name))
    made = fact.made(file) if fact is not None else []
    return Stated(value=made[0], read=f"nothing said; {fact.text}", basis="default") if fact and made else None


def lost(name: str, value: Json, source: Model, candidate: Model) -> str:
    """Return what is known to be lost where a GGUF file holds this value of a field, or nothing."""
    fact = _facts("lost").get((candidate.architecture, name))
    stated = source.fields[name].value if name in source.fields else None
    if fact is None or fact.whose not in ("", source.architecture) or fact.said not in (None, stated):
        return ""
    fits = value in made if (made := fact.made(candidate)) else fact.whose or value is None
    return fact.text if fits else ""
