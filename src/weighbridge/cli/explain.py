"""`weighbridge explain`: what a gate kind asks, or what a code means."""

from __future__ import annotations

import difflib
import itertools
import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import click

from weighbridge.cards import COMMON, CodeCard, gate_words
from weighbridge.contract.problem_codes import CODES
from weighbridge.errors import UsageError
from weighbridge.gates import KINDS
from weighbridge.limits import fields
from weighbridge.views.codes import SUBJECT_CODES

WIDTH = 100
_HANGING: Final[dict[str, Any]] = {"initial_indent": "  ", "subsequent_indent": "      ", "break_long_words": False}


@click.command(
    "explain",
    short_help="Explain a gate kind or a code.",
    epilog="\b\nExample: weighbridge explain dtype-preservation\nExample: weighbridge explain unknown-key",
)
@click.argument("word", required=False)
def command(word: str | None) -> None:
    """Explain a gate kind or a code, in words for people; without WORD, list the gate kinds."""
    if word is None:
        lines = [line for name in KINDS for line in _listed(name)]
    else:
        lines = list(_kind(word) if word in KINDS else _code(word))
    if word is not None and not lines:
        near = difflib.get_close_matches(word, sorted(_known()), n=1)
        suggestion = f"; did you mean {near[0]!r}?" if near else ""
        remedy = "" if near else "`weighbridge explain` lists the gate kinds"
        raise UsageError("unknown-word", f"nothing is called {word!r}{suggestion}", remedy=remedy)
    for line in lines:
        click.echo(line)


def _known() -> set[str]:
    """Collect every word that can be explained."""
    codes = itertools.chain(CODES, COMMON, *SUBJECT_CODES.values(), *(kind.codes for kind in KINDS.values()))
    return {*KINDS, *codes}


def _listed(name: str) -> list[str]:
    return textwrap.wrap(f"{name:<24} {gate_words(name).asks}", WIDTH, subsequent_indent=" " * 25)


def _kind(name: str) -> Iterator[str]:
    card, kind = gate_words(name), KINDS[name]
    yield click.style(f"{name} (version {kind.version})", bold=True)
    yield from textwrap.wrap(card.asks, WIDTH)
    yield from textwrap.wrap(card.why, WIDTH)
    yield "\nroles"
    yield from (f"  {role} ({kind.roles[role]}): {text}" for role, text in card.roles.items())
    yield "\nlimits (with:)"
    yield from _keys(kind.limits)
    if fields(kind.measure):
        yield "\noptions (measure:)"
        yield from _keys(kind.measure)
    yield "\ncodes"
    for code, words in card.codes.items():
        yield from textwrap.wrap(f"{kind.codes[code]:<8} {code}: {words.says}", WIDTH, **_HANGING)
    yield "\nshown able to fail by"
    yield from dict.fromkeys(f"  {falsifier.name} ({falsifier.code})" for falsifier in kind.falsifiers)


def _keys(keys: type) -> Iterator[str]:
    """Tell each key with its unit, what it means, its bounds, and its default as it is written in YAML."""
    for item in fields(keys):
        doc = item.doc
        unit = f" [{doc.unit}]" if doc.unit else ""
        bounds = ((">", doc.gt), ("≥", doc.ge), ("<", doc.lt), ("≤", doc.le))
        told = [f"{sign} {bound:g}" for sign, bound in bounds if bound is not None]
        default = "required" if item.required else f"default {json.dumps(item.default, default=str)}"
        text = f"{item.key}{unit}: {doc.text} ({', '.join((*told, default))})"
        yield from textwrap.wrap(text, WIDTH, **_HANGING)


def _code(code: str) -> Iterator[str]:
    if code in CODES:
        yield click.style(code, bold=True)
        yield from str(CODES[code]).splitlines()
    for of, codes in SUBJECT_CODES.items():
        if code in codes:
            yield click.style(f"{code} ({of})", bold=True)
            yield from textwrap.wrap(codes[code], WIDTH)
    if code in COMMON:
        yield from _words("any gate", COMMON[code])
    for kind in KINDS.values():
        if code in kind.codes:
            yield from _words(f"{kind.name}: {kind.codes[code]}", gate_words(kind.name).codes[code])


def _words(of: str, words: CodeCard) -> Iterator[str]:
    yield click.style(of, bold=True)
    yield from textwrap.wrap(f"says: {words.says}", WIDTH, **_HANGING)
    named = (
        ("enough", words.enough),
        ("likely cause", words.cause),
        ("first knob", words.knob),
        ("look at", words.look),
    )
    for label, text in named:
        yield from textwrap.wrap(f"{label}: {text}", WIDTH, **_HANGING) if text else ()
