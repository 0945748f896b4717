"""`weighbridge explain`: explain any word that the tool prints or reads, from the cards."""

import difflib
import json
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from weighbridge.cards import words as cards
from weighbridge.clauses.kind import Kind
from weighbridge.cli.completion import cards as complete
from weighbridge.cli.options import WIDEST, columns_of, tell, verb
from weighbridge.contract.checks import is_timed
from weighbridge.contract.load import BUILTIN, builtin_names, contracts_here, load_contract
from weighbridge.contract.strict_yaml import block
from weighbridge.core import PluginError, SubjectKind, UsageError, data_path, fields, grouped, plain
from weighbridge.core.limits import BOUNDS
from weighbridge.gates import KINDS
from weighbridge.quantities.page import classes
from weighbridge.report import ENOUGH, hints
from weighbridge.verifiers import BROUGHT, MODULES


@verb("explain", "Explain a gate kind, a code or any word in the output.", "dtype-preservation", "no-pid")
@click.argument("word", nargs=-1, shell_complete=complete)
def command(word: tuple[str, ...]) -> None:
    """Explain WORD: a gate, gate kind, quantity, contract, code or any other word in the output.

    Without WORD, list every word that can be explained.
    """
    wanted = " ".join(word)
    known = list(_index())
    asked = {_folded(wanted), _folded(wanted.replace("_", "-"))}  # of a column, as of the kind that reads it
    found = [telling for _, name, telling in known if _folded(name) in asked] or [*_declared(wanted.upper())]
    if wanted and not found:
        names = {name.casefold(): name for _, name, _ in known}
        near = difflib.get_close_matches(wanted.casefold(), names, n=1)
        suggestion = f"; did you mean {names[near[0]]!r}?" if near else ""
        remedy = "" if near else "`weighbridge explain` lists every word"
        raise UsageError("unknown-word", f"nothing is called {wanted!r}{suggestion}", remedy=remedy)
    if wanted:
        tell(line for telling in found for line in telling)
        return
    for group, listed in grouped((group, name) for group, name, _ in known).items():
        tell([click.style(group, bold=True)])
        if group == "gate kind":
            tell(line for name in listed for line in _item(f"{name:<24} {_asks(name)}"))
        else:
            tell(_wrapped(", ".join(dict.fromkeys(listed)), "  ", "  "))


def _wrapped(text: str, start: str = "", indent: str = "") -> list[str]:
    """Return a text as lines of at most a hundred columns, or the terminal's where it has fewer."""
    indents = {"initial_indent": start, "subsequent_indent": indent}
    return textwrap.wrap(text, _width(), **indents, break_long_words=False, break_on_hyphens=False)  # type: ignore[arg-type]


def _width() -> int:
    return min(WIDEST, columns_of(sys.stdout) or WIDEST)


def _item(text: str) -> list[str]:
    return _wrapped(text, start="  ", indent="      ")


def _folded(word: str) -> str:
    """Return a word as it is looked up: in lower case, without hyphens, and `rounded:F16` as any other `rounded:`."""
    head, colon, rest = word.casefold().replace("-", " ").strip().partition(":")
    return head + colon + rest if f"{head}:" == BUILTIN else head


def _index() -> Iterator[tuple[str, str, Iterator[str]]]:
    """Yield every word with its group and the lines that explain it; no card is read before the first of them is."""
    for name in KINDS:
        yield "gate kind", name, _kind(name)
    for (quantity, kinds), module in MODULES.items():
        yield "quantity", quantity, _quantity(quantity, kinds, data_path("verifiers") / f"{module}.yaml")
    for quantity in BROUGHT:
        yield "quantity", quantity, _brought(quantity)
    for name in builtin_names():
        yield "contract", f"{BUILTIN}{name}", _contract(f"{BUILTIN}{name}")
    for group, words in (*cards.glossary("terms").items(), *cards.glossary("codes").items()):
        for word, meaning in words.items():
            yield group, word, _meaning(f"{word} ({group})", meaning)
    for code in cards.any_gate():
        yield "code of any gate", code, _code("any gate", code)
    for name in KINDS:
        with suppress(PluginError):  # said where the kind itself is asked for, and by doctor
            for code, outcome in KINDS[name].codes.items():
                yield f"code of {name}", code, _code(f"{name}: {outcome}", code, name)


def _asks(kind: str) -> str:
    try:
        return cards.gate_words(kind).asks
    except PluginError as error:
        return f"{error.code}: {error.what}"


def _kind(name: str) -> Iterator[str]:
    card, kind = cards.gate_words(name), KINDS[name]
    yield click.style(f"{name} (version {kind.version})", bold=True)
    yield from _wrapped(card.asks)
    yield from _wrapped(card.why)
    if kind.figure is not None:
        yield "\nfigure"
        said = f"{kind.figure.name}: {kind.figure.formula}"
        yield from _item(f"{said} ({kind.figure.source})" if kind.figure.source else said)
    yield "\nroles"
    yield from (f"  {role} ({kind.roles[role]}): {text}" for role, text in card.roles.items())
    yield "\nlimits (with:)"
    yield from _keys(kind.limits)
    if fields(kind.measure):
        yield "\noptions (measure:)"
        yield from _keys(kind.measure)
    yield "\ncodes"
    for code, outcome in kind.codes.items():
        words = cards.code_card(name, code)
        yield from _item(f"{outcome:<8} {code}: {words.says if words else ''}")
    yield "\nshown able to fail by"
    yield from dict.fromkeys(f"  {one.name} ({one.code})" for one in kind.mutations)
    if not kind.mutations or any(item.doc.must for item in fields(kind.limits)):
        yield "  each limit, at the nearest value beyond it"
    yield "\nto copy into a contract"
    yield from _gate(kind)


def _gate(kind: Kind[Any]) -> Iterator[str]:
    """Yield a gate of a kind as YAML. A rule's limits are its defaults: those of its examples are for short ones."""
    given = cards.gate_card(kind.name).given
    usual = {item.key: item.default for item in fields(kind.limits) if kind.figure and not item.required}
    judged, wanted = ({key: one for key, one in given.items() if key == name} for name in ("with", "measure"))
    if "with" in judged:
        judged["with"] = {key: one if usual.get(key) is None else usual[key] for key, one in judged["with"].items()}  # type: ignore[attr-defined]
    docs, filled = {item.key: item.doc for item in fields(kind.limits)}, kind.filled(judged.get("with", {}))  # type: ignore[arg-type]
    named = {"id": f"GATE-{kind.name.upper()}", "title": cards.gate_words(kind.name).asks, "kind": kind.name}
    where = {"where": {"tokens_per_step": 2048}} if is_timed(kind) else {}
    gate = {**named, "subjects": {role: role for role in filled}, **wanted, **where, **judged}

    def said(place: tuple[str | int, ...]) -> str:
        doc = docs.get(str(place[-1])) if place[2:3] == ("with",) else None
        return f"{doc.text} [{doc.unit}]" if doc and doc.unit else doc.text if doc else ""

    whole = {"subjects": {role: {"kind": str(kind.roles[role])} for role in filled}, "gates": [gate]}
    for line in block(whole, said):
        if len(line) <= _width() and not line.startswith("    title"):
            yield line
            continue
        value, hash_sign, remark = line.partition("  # ")
        indent = " " * (len(value) - len(value.lstrip()))
        yield from _wrapped(remark, f"{indent}# ", f"{indent}# ") if hash_sign else ()
        yield from _wrapped(value, indent=f"{indent}  ") if value.startswith("    title") else (value,)


def _keys(keys: type, within: str = "") -> Iterator[str]:
    """Yield each key with its unit, meaning, bounds and default; keys of what a list holds follow those of the list."""
    for item in fields(keys):
        doc = item.doc
        unit = f" [{doc.unit}]" if doc.unit else ""
        bounds = [f"{sign} {bound:g}" for name, sign, *_ in BOUNDS if (bound := getattr(doc, name)) is not None]
        default = "required" if item.required else f"default {json.dumps(plain(item.default))}"
        yield from _item(f"{within}{item.key}{unit}: {doc.text} ({', '.join((*bounds, default))})")
        for part in classes(item.type):
            yield from _keys(part, f"{within}{item.key}.")


def _brought(name: str) -> Iterator[str]:
    yield from _quantity(name, BROUGHT[name].kinds, BROUGHT.beside(name, f"{name}.yaml"))


def _quantity(name: str, kinds: tuple[SubjectKind, ...], path: Path) -> Iterator[str]:
    card = cards.read_card(cards.VerifierWords, path, cards.SPECIMENS)
    yield click.style(f"{name} (quantity of {' and '.join(kinds) or 'this host'})", bold=True)
    yield from _items(measures=card.measures, method=card.method, unit=card.unit, canary=card.canary)
    yield from (line for pitfall in card.pitfalls for line in _items(pitfall=pitfall))


def _contract(name: str) -> Iterator[str]:
    contract = load_contract(name).contract
    yield click.style(f"{name} (version {contract.version})", bold=True)
    yield from _wrapped(contract.title)
    for gate in contract.gates:
        yield from _item(f"{gate.id}: {gate.title} ({gate.kind})")
    bound = " ".join(f"--subject {subject}={decl.kind.upper()}" for subject, decl in contract.subjects.items())
    yield f"Type: weighbridge verify {name} {bound}"


def _declared(gate: str) -> Iterator[Iterator[str]]:
    for loaded in contracts_here().values() if gate.startswith("GATE-") else ():
        for one in (one for one in loaded.contract.gates if one.id == gate):
            heading = click.style(f"{gate} ({loaded.gate_at(gate).file}, {one.severity})", bold=True)
            yield iter([heading, *_wrapped(one.title), *_wrapped(one.why), f"Type: weighbridge explain {one.kind}"])


def _meaning(heading: str, meaning: cards.Meaning) -> Iterator[str]:
    yield click.style(heading, bold=True)
    for label, text in ("", meaning.means), ("Example: ", meaning.example), ("What to do: ", meaning.do):
        file = [label.strip(), *(f"  {line}".rstrip() for line in text.splitlines())] if "\n" in text else []
        yield from file or (_wrapped(label + text) if text else ())


def _code(of: str, code: str, kind: str = "") -> Iterator[str]:
    words = cards.code_card(kind, code) if kind else cards.any_gate()[code]
    if words is None:
        return
    yield click.style(of, bold=True)
    said = {"says": words.says, ENOUGH: words.enough, **hints(words)}
    yield from _items(**{label: cards.unfigured(text) for label, text in said.items()})


def _items(**named: str) -> Iterator[str]:
    for label, text in named.items():
        yield from _item(f"{label}: {text}") if text else ()
