"""command_runs: run a command, as command_outcome does, once for each list of arguments; may hide accelerators."""

from collections.abc import Sequence
from typing import Any

from weighbridge.core import Fields, Measurement, SubjectKind, Unmeasured, fields
from weighbridge.quantities.commands import CommandOutcome, CommandRun, case_of
from weighbridge.verifiers.command_outcome import CANARY, HIDDEN, KNOWN_COMMAND, TIMEOUT_S, ended_as_known, run
from weighbridge.verifiers.verifier import Canary, Verifier, Views, rows_by_name, table
from weighbridge.views.command import CommandView


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Run the command with each list of arguments, in order; refuse what cannot be started."""
    timeout_s = float(str(options.get("timeout_s", TIMEOUT_S)))
    hidden = HIDDEN if options.get("hide_accelerators") else {}
    runs = []
    for arguments in _cases(options):
        outcome = run(_with(views, arguments), timeout_s, {}, hidden)
        ended = {item.name: getattr(outcome, item.name) for item in fields(CommandOutcome)}
        runs.append(CommandRun(case=case_of(arguments), **ended))
    return table("command_runs", runs, at="exit of the command")


def _cases(options: Fields) -> Sequence[Sequence[str]]:
    given: Any = options.get("cases") or [[]]
    return list(given)


def _with(views: Views, arguments: Sequence[str]) -> CommandView:
    view: CommandView = views[0]
    return view.overlaid((*view.argv, *arguments))


def extent(_views: Views, options: Fields) -> int:
    """Count the lists of arguments."""
    return len(_cases(options))


def canary(views: Views, options: Fields, _measured: Measurement) -> Canary:
    """Run a command with a known end in the place of the bound one, which says what arguments it was given."""
    known = (views[0].overlaid(KNOWN_COMMAND),)

    def seen(again: Measurement | Unmeasured) -> bool:
        found = rows_by_name(again)
        given = [_with(known, arguments).resolved()[len(KNOWN_COMMAND) :] for arguments in _cases(options)]
        names = [case_of(arguments) for arguments in _cases(options)]
        return list(found) == names and all(map(ended_as_known, found.values(), given))

    return Canary(name=CANARY, place=", ".join(map(case_of, _cases(options))), views=known, seen=seen)


KINDS = (SubjectKind.COMMAND,)
VERIFIER = Verifier(quantity="command_runs", kinds=KINDS, measure=measure, extent=extent, canary=canary)
