"""The page of `spec/` that lists every quantity: written from the dataclasses, so that it says what the code holds."""

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from weighbridge.core import fields, plain
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.base import Form, Quantity

HEAD = """\
# Quantities

What verifiers measure and judges read, field by field, as it stands in a bundle. Written by `weighbridge schema
--quantities` from the dataclasses in `src/weighbridge/quantities/`; `make spec` writes it again. What a field may be is
said in JSON's words. `weighbridge explain QUANTITY` tells how each is measured.
"""
TYPES = (str, int, float, bool, object, type(None))
NAMES: Mapping[object, str] = dict(zip(TYPES, ("string", "integer", "number", "boolean", "any", "null"), strict=True))


def page() -> str:
    """Return the page as Markdown: a section for each quantity, and one for each dataclass inside of a row."""
    sections = [HEAD]
    sections += ["\n".join(_quantity(one)) for _, one in sorted(QUANTITIES.items())]
    inner = {cls.__name__: cls for quantity in QUANTITIES.values() for cls in _inside(quantity.row)}
    sections.append("# Inside of rows\n")
    sections += ["\n".join((f"## {name}\n", _about(cls), "", *_table(cls))) for name, cls in sorted(inner.items())]
    return "\n".join(sections)


def _quantity(quantity: Quantity) -> Iterator[str]:
    yield f"## {quantity.name}\n"
    if quantity.form is Form.SERIES:
        yield "One column of a run: two arrays of one length, `step` (64-bit integers) and `value` (64-bit floats).\n"
        return
    form = f"A table; `{quantity.key}` names the place." if quantity.form is Form.ROWS else "One record."
    yield f"{form} {_about(quantity.row)}\n"
    yield from _table(quantity.row)


def _about(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split())


def _table(cls: type) -> Iterator[str]:
    yield "| field | type | unit | meaning | typical |"
    yield "|---|---|---|---|---|"
    for item in fields(cls):
        value = item.doc.typical if item.required else item.default
        # Nothing where no value is said, or where it is a dataclass with a section of its own.
        bare = (value is None and type(None) not in typing.get_args(item.type)) or any(classes(item.type))
        typical = "" if bare else f"`{json.dumps(plain(value), ensure_ascii=False)}`"
        cells = (f"`{item.key}`", _type(item.type), item.doc.unit, item.doc.text, typical)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _type(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(one) for one in args)
    if origin is tuple:
        return f"list of {_type(args[0])}" if args[-1] is Ellipsis else f"list of {', '.join(map(_type, args))}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"object of {_type(args[1])}"
    if dataclasses.is_dataclass(hint):
        name = typing.cast(type, hint).__name__
        return f"[{name}](#{name.lower()})"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return " or ".join(f"`{member.value}`" for member in hint)
    return NAMES[hint]


def classes(hint: Any) -> Iterator[type]:
    """Yield the dataclasses that a type is made of."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for one in typing.get_args(hint):
        yield from classes(one)


def _inside(cls: type) -> Iterator[type]:
    for item in fields(cls) if dataclasses.is_dataclass(cls) else ():
        for inner in classes(item.type):
            yield inner
            yield from _inside(inner)
