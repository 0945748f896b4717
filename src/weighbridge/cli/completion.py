"""What a shell offers after a key, by click's protocol: kinds, contracts, policies, gates, loaded when asked for."""

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem

BREAKS = ":="  # where bash breaks a word in parts, of which it completes the last


def _starting(words: Iterable[str], start: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in dict.fromkeys(words) if word.startswith(start)]


def contracts(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Offer the contracts in contracts/ and those that ship with the tool; else any file."""
    from weighbridge.contract.load import BUILTIN, builtin_names, written_in

    names = (*written_in(), *(f"{BUILTIN}{name}" for name in builtin_names()))
    return [CompletionItem(start, type="file"), *_starting(names, start)]


def gates(context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Offer the gates of the contracts on the command line, or of those in contracts/."""
    from weighbridge.contract.load import load_contract, written_in
    from weighbridge.core import WeighbridgeError

    found: list[str] = []
    named = (*context.params.get("contracts", ()), *context.args)  # these, where the option lacks its value still
    for name in named or written_in():
        with contextlib.suppress(WeighbridgeError):  # a shell is no place for its problems: `lint` tells them
            found += [gate.id for gate in load_contract(name).contract.gates]
    return _starting(found, start)


def recorded_gates(context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Offer the gates of the ledger, with their contract where the argument is a place."""
    known = [one.params["folder"] for one in (context, context.parent) if one and one.params.get("folder")]
    ledger: Path = known[0] if known else Path("evidence/ledger")
    found = sorted(path for path in ledger.glob("*/*") if path.is_dir())
    place = parameter.name == "place"
    return _starting((path.relative_to(ledger).as_posix() if place else path.name for path in found), start)


def policies(_context: click.Context, _parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Offer what an import can be meant to be; else a file of limits."""
    from weighbridge.gates.families.policies import CEILING, PARTS, POLICIES

    begun = start[: start.rfind("+") + 1] or (CEILING if start.startswith(CEILING) else "")
    offered = (f"{begun}{part}" for part in PARTS) if begun else (*POLICIES, CEILING)
    return [CompletionItem(start, type="file"), *_starting(offered, start)]


def cards(_context: click.Context, parameter: click.Parameter, start: str) -> list[CompletionItem]:
    """Offer gate kinds and quantities; to `explain` also contracts, and the words of the output."""
    from weighbridge.cards.words import any_gate, glossary
    from weighbridge.contract.load import BUILTIN, builtin_names
    from weighbridge.gates import KINDS
    from weighbridge.verifiers import MODULES

    names = [*KINDS, *(quantity for quantity, _ in MODULES)]
    if parameter.name == "word":
        groups = (*glossary("terms").values(), *glossary("codes").values(), any_gate())
        names += [*(f"{BUILTIN}{name}" for name in builtin_names()), *(word for group in groups for word in group)]
    return _starting((name for name in names if " " not in name), start)


class Bash(BashComplete):
    """click's, for words with a colon: bash hands them over in parts, and puts an answer in the place of the last."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the one that is begun, in one piece each."""
        words, begun = super().get_completion_args()
        whole: list[str] = []
        for word in (*words, begun):
            if whole and (word[:1] in tuple(BREAKS) or whole[-1][-1:] in tuple(BREAKS)):
                whole[-1] += word
            else:
                whole.append(word)
        return whole[:-1], whole[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return an answer without what stands before the last break of the word that is begun."""
        begun = self.get_completion_args()[1]
        if begun.startswith("-"):  # --option=VALUE
            begun = begun.partition("=")[2]
        before = re.match(rf".*[{BREAKS}]|", begun)
        assert before is not None
        return f"{item.type},{str(item.value).removeprefix(before[0])}"
