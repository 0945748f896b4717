"""What llama.cpp's converter writes of its own, and what it loses: `conversion_facts.yaml`, one row a fact."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from weighbridge.core import Json, table
from weighbridge.model_config.model_keys import Model, head_dim

CONVERTER = "of llama.cpp's converter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a converter does with fields of some architectures, with its line."""

    of: tuple[str, ...]
    fields: tuple[str, ...]
    why: str
    line: str
    unsaid: bool = False
    makes: tuple[tuple[str, float], ...] = ()
    whose: str = ""
    said: Json = None

    @property
    def text(self) -> str:
        """Return the reason, with the converter's line."""
        return f"{self.why} ({self.line} {CONVERTER})"


def written(architecture: str, name: str) -> Fact | None:
    """Return what the converter writes of its own in a field of this architecture, if anything."""
    return _facts("written").get((architecture, name))


@functools.cache
def _facts(kind: str) -> Mapping[tuple[str, str], Fact]:
    """Read the facts of one kind, by architecture and field."""
    facts = [Fact(**row) for row in table("model_config/conversion_facts")[kind]]
    return {(one, field): fact for fact in facts for one in fact.of for field in fact.fields}


def lost(name: str, value: Json, source: Model, candidate: Model) -> str:
    """Return what is known to be lost where a GGUF file holds this value of a field, or nothing."""
    fact = _facts("lost").get((candidate.architecture, name))
    stated = source.fields[name].value if name in source.fields else None
    if fact is None or fact.whose not in ("", source.architecture) or fact.said not in (None, stated):
        return ""
    numbers: dict[str, Json] = {key: one.value for key, one in candidate.fields.items()}
    numbers |= {"": 1, "head_dim": head_dim(candidate.fields)}
    made = [times * number for key, times in fact.makes if isinstance(number := numbers.get(key), (int, float))]
    fits = value in made if made else fact.whose or value is None
    return fact.text if fits else ""
