"""`weighbridge explain`: what a gate kind asks, or what a code means."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterator

import click

from weighbridge.cards import COMMON, CodeCard, gate_card
from weighbridge.contract.codes import CODES
from weighbridge.errors import UsageError
from weighbridge.gates import KINDS
from weighbridge.limits import fields
from weighbridge.views.codes import CHECKPOINT_CODES


@click.command("explain", epilog="Example: weighbridge explain dtype-preservation; weighbridge explain unknown-key")
@click.argument("word")
def command(word: str) -> None:
    """Explain a gate KIND or a CODE, in words for people."""
    lines = list(_kind(word) if word in KINDS else _code(word))
    if not lines:
        known = {*KINDS, *CODES, *COMMON, *CHECKPOINT_CODES, *(code for kind in KINDS.values() for code in kind.codes)}
        near = difflib.get_close_matches(word, known, n=1)
        suggestion = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError("unknown-word", f"nothing is called {word!r}{suggestion}")
    for line in lines:
        click.echo(line)


def _kind(name: str) -> Iterator[str]:
    card, kind = gate_card(name), KINDS[name]
    yield click.style(f"{name} (version {kind.version})", bold=True)
    yield from textwrap.wrap(card.asks, 100)
    yield from textwrap.wrap(card.why, 100)
    yield "\nroles"
    yield from (f"  {role} ({kind.roles[role]}): {text}" for role, text in card.roles.items())
    yield "\nlimits (with:)"
    limits: type = kind.limits
    for item in fields(limits):
        unit = f" [{item.doc.unit}]" if item.doc.unit else ""
        default = "required" if item.required else f"default {item.default!r}"
        yield f"  {item.key}{unit}: {item.doc.text} ({default})"
    yield "\ncodes"
    for code, words in card.codes.items():
        yield f"  {kind.codes[code]:<8} {code}: {words.says}"
    yield "\nshown able to fail by"
    yield from (f"  {falsifier.name} ({falsifier.code})" for falsifier in kind.falsifiers)


def _code(code: str) -> Iterator[str]:
    if code in CODES:
        yield click.style(code, bold=True)
        yield from str(CODES[code]).splitlines()
    if code in CHECKPOINT_CODES:
        yield click.style(f"{code} (a checkpoint that cannot be read)", bold=True)
        yield from textwrap.wrap(CHECKPOINT_CODES[code], 100)
    if code in COMMON:
        yield from _words("any gate", COMMON[code])
    for kind in KINDS.values():
        if code in kind.codes:
            yield from _words(f"{kind.name}: {kind.codes[code]}", gate_card(kind.name).codes[code])


def _words(of: str, words: CodeCard) -> Iterator[str]:
    yield click.style(of, bold=True)
    yield f"  says: {words.says}"
    named = (
        ("enough", words.enough),
        ("likely cause", words.cause),
        ("first knob", words.knob),
        ("look at", words.look),
    )
    yield from (f"  {label}: {text}" for label, text in named if text)
