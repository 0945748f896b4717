"""The cards: what gate kinds ask, verifiers measure and words mean. Words and examples: a card decides nothing."""

import dataclasses
import functools
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from yaml import YAMLError

from weighbridge import gates
from weighbridge.contract import strict_yaml
from weighbridge.core import ContractError, Doc, Json, LimitsError, Offence, Outcome, Verdict, data_path, printable
from weighbridge.core.data import parsed
from weighbridge.core.frozen import dataclass, field
from weighbridge.core.limits import read
from weighbridge.gates.families.block_types import BLOCK, FILE_TYPES

T = TypeVar("T")
EXAMPLES, SPECIMENS = b"\ngiven:", b"\nspecimens:\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCard:
    """What one code says, what would have sufficed, and the triage line: hints, never proven causes."""

    says: str
    enough: str = ""
    cause: str = ""
    knob: str = ""
    look: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateWords:
    """One gate kind, in words."""

    card: Annotated[str, Doc(choices=("gate/v1",))]
    kind: str
    asks: str
    why: str
    roles: Mapping[str, str]
    passes: str
    briefly: str = ""  # a pass in at most 90 characters, where `passes` says more: what was looked at, what was nearest
    besides: str = ""  # what a FAIL tells, too
    codes: Mapping[str, CodeCard]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCard(GateWords):
    """One gate kind, in words, with the examples that its judge must bear out: plain data, read by `examples`."""

    given: Mapping[str, object]
    examples: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """Subjects with known values: what a verifier must measure of them, or how it must refuse them."""

    name: str
    subjects: tuple[str, ...]
    options: Mapping[str, object] = field(default_factory=dict)
    expects: Mapping[str, object] = field(default_factory=dict)
    error: str = ""
    needs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierWords:
    """One verifier, in words."""

    card: Annotated[str, Doc(choices=("verifier/v0",))]
    quantity: str
    subjects: tuple[str, ...]
    measures: str
    method: str
    unit: str
    pitfalls: tuple[str, ...]
    canary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierCard(VerifierWords):
    """One verifier, in words, with the specimens that it must measure so."""

    specimens: tuple[Specimen, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What one word means, an example of it, and what to do about it; `do` may stand in `means`."""

    means: str
    example: str = ""
    do: str = ""


@functools.cache
def gate_card(kind: str) -> GateCard:
    """Read the card of a gate kind; a KeyError where there is no such kind here."""
    return read_card(GateCard, gate_path(kind))


@functools.cache
def gate_words(kind: str) -> GateWords:
    """Return what messages need of a card: all but its examples, which come last and are most of it."""
    try:
        path = gate_path(kind)
    except KeyError:  # a kind that is not here, whose verdicts can still be shown
        return GateWords(card="gate/v1", kind=kind, asks="", why="", roles={}, passes="pass", codes={})
    return read_card(GateWords, path, EXAMPLES)


def gate_path(kind: str) -> Path:
    """Return the card of a gate kind: a shipped one, or beside the module that another package brings."""
    name = f"{kind}.yaml"
    return gates.BROUGHT.beside(kind, name) if kind not in gates.OWN else data_path("gates") / name


@functools.cache
def any_gate() -> Mapping[str, CodeCard]:
    """Read the words for what any gate can come to, whatever its kind."""
    return {code: CodeCard(**words) for code, words in _words("any-gate").items()}


@functools.cache
def glossary(name: str) -> Mapping[str, Mapping[str, Meaning]]:
    """Read `codes` or `terms`: every word with its meaning, by group."""
    return {
        group: {word: Meaning(means=said) if isinstance(said, str) else Meaning(**said) for word, said in words.items()}
        for group, words in _words(name).items()
    }


def _words(name: str) -> Any:
    return parsed((data_path("words") / f"{name}.yaml").read_bytes())


def read_card(cls: type[T], path: Path, before: bytes | None = None) -> T:
    """Read one card strictly, all or what is `before` some words; raise `card` with every problem at its position."""
    text = path.read_bytes()
    text = text if before is None else text.partition(before)[0]
    own = before is not None and path.parent in (data_path("gates"), data_path("verifiers"))
    try:
        return read(cls, parsed(text) if own else strict_yaml.load(text, where=str(path)).data)
    except YAMLError:  # which names no place
        strict_yaml.load(text, where=str(path))
        raise
    except LimitsError as error:
        document = strict_yaml.load(text, where=str(path))
        problems = tuple(
            ContractError("card", problem.what, where=document.at(problem.path, at_key=problem.at_key))
            for problem in error.problems
        )
        raise ContractError("card", "the card cannot be used", where=str(path), problems=problems) from None


class _Filled(string.Formatter):
    """Fill a card's words from figures; a figure that is absent reads as `?`, so that a message is never lost."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (KeyError, IndexError, AttributeError, TypeError):
            return "?", field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        try:
            return str(super().format_field(_shown(value), format_spec))
        except (ValueError, TypeError):
            return str(_shown(value))


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()  # as it is written in YAML
    if isinstance(value, (list, tuple)):
        return ", ".join(str(_shown(item)) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_shown(item)}" for key, item in sorted(value.items()))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return "none" if value is None else value


def fill(template: str, figures: Mapping[str, object]) -> str:
    """Fill one template; control characters of hostile names are escaped."""
    known = re.sub(r"<<(.*?)(?:\|\|(.*?))?>>", lambda part: _part(part, figures), template)
    return printable(_Filled().vformat(known, (), dict(figures)))


def _part(part: re.Match[str], figures: Mapping[str, object]) -> str:
    """Return a part between << and >>, without one that no figure fills; behind || stands what is said of nothing."""
    names = [name for _, name, _, _ in string.Formatter().parse(part[1]) if name]
    nothing = unfilled(part[1], figures) or (part[2] is not None and not any(map(figures.get, names)))
    return (part[2] or "") if nothing else part[1]


def unfilled(template: str, figures: Mapping[str, object]) -> list[str]:
    """List the names in a template that no figure fills, those in parts between << and >> apart."""
    template = re.sub(r"<<.*?>>", "", template)
    names = (name for _, name, _, _ in string.Formatter().parse(template) if name is not None)
    return [name for name in names if _Filled().get_field(name, (), dict(figures))[0] == "?"]


def unfigured(template: str) -> str:
    """Return a template for a reader without a verdict: names of figures in capitals, optional parts as they stand."""
    text = template.replace(">><<", "; or ").replace("||", "; or ").replace("<<", "").replace(">>", "")
    return "".join(said + re.split(r"\W", name or "")[0].upper() for said, name, _, _ in string.Formatter().parse(text))


def hints(card: GateWords, verdict: Verdict) -> list[tuple[str, dict[str, Json]]]:
    """Return every text that a verdict may be shown with, and the figures that fill it."""
    figures = numbers(verdict)
    if verdict.outcome is Outcome.PASS:
        return [(card.passes, figures), (card.briefly, figures)]
    blamed = [(one.code, said_of(one, figures)) for one in verdict.offences]
    cards = ((code_card(card.kind, code), of) for code, of in blamed or [(verdict.code, figures)])
    texts = [(text, of) for words, of in cards if words for text in dataclasses.asdict(words).values()]
    return [*texts, *([(card.besides, figures)] if verdict.outcome is Outcome.FAIL else [])]


def render(card: GateWords, verdict: Verdict) -> list[str]:
    """Return a verdict in the card's words: a line for each offence, or one for a pass or a block."""
    figures = numbers(verdict)
    if verdict.outcome is Outcome.PASS:
        return [fill(card.passes, figures)]
    each = ((one, code_card(card.kind, one.code)) for one in verdict.offences)
    lines = [fill(words.says, said_of(one, figures)) if words else f"{one.place}: {one.code}" for one, words in each]
    words = code_card(card.kind, verdict.code)
    return lines or [fill(words.says, figures) if words else verdict.code]


def said_of(one: Offence, figures: Mapping[str, Json]) -> dict[str, Json]:
    """Return the figures of an offence as a card's words call them: blocks by their own dtype, and counted whole."""
    said: dict[str, Json] = {**figures, **one.figures, "place": one.place}
    if said.get("packed") in BLOCK:  # its values were compared as F32
        said["source_dtype"] = said["packed"]
    if "file_type" in said:
        said |= {name: f"{FILE_TYPES.get(said.get(name), 'type')} ({said.get(name)})" for name in ("file_type", "made")}
    differing, elements, size = said.get("differing"), said.get("elements"), BLOCK.get(str(said.get("candidate_dtype")))
    if size and isinstance(differing, int) and isinstance(elements, int) and not (differing % size or elements % size):
        return said | {"differing": differing // size, "pieces": f"{elements // size} blocks"}
    return said | {"pieces": f"{elements} elements"}


def numbers(verdict: Verdict) -> dict[str, Json]:
    """Return every number of a verdict by its name, as a card's words call it."""
    names = "counted", "of", "measured", "limit", "enough", "unit"
    named: dict[str, Json] = {name: getattr(verdict, name) for name in names} | {"headroom": "none"}
    measured, limit = verdict.measured, verdict.limit
    if isinstance(measured, (int, float)) and isinstance(limit, (int, float)) and limit:
        named["headroom"] = f"{100 * abs(limit - measured) / abs(limit):.1f} %"
    return named | dict(verdict.figures)


def code_card(kind: str, code: str) -> CodeCard | None:
    """Find the words for a code of a gate kind, or of any gate."""
    return gate_words(kind).codes.get(code) or any_gate().get(code)
