"""What makes judging impossible. A verdict is a value; only these are raised, and each ends in one clear message."""

import sys

from weighbridge.core.printable import printable

# What code of others may raise: its sys.exit(0) must not end this process as a pass.
FAULTS = Exception, SystemExit, GeneratorExit


def show_traceback(error: BaseException | None) -> None:
    """Print the traceback of an error to stderr, where the person asked for it by --debug."""
    if error is not None and "--debug" in sys.argv:
        import traceback

        traceback.print_exception(error)


class WeighbridgeError(Exception):
    """A problem that a person can act on: what was found, where, and what to do; `code` is stable, for `explain`."""

    exit_code = 4  # of the process

    def __init__(self, code: str, what: str, *, where: str = "", remedy: str = "") -> None:
        self.code, self.what, self.where, self.remedy = code, what, where, remedy
        super().__init__(code, what, where, remedy)

    def __str__(self) -> str:
        place = f"{printable(self.where)}: " if self.where else ""
        remedy = f"\n  {printable(self.remedy)}" if self.remedy else ""
        return f"{place}{self.code} {printable(self.what)}{remedy}"


class ContractError(WeighbridgeError):
    """A contract, or several problems of one, that cannot be used."""

    exit_code = 2

    def __init__(self, code: str, what: str, *, problems: "tuple[ContractError, ...]" = (), **said: str) -> None:
        super().__init__(code, what, **said)
        self.problems = problems or (self,)

    def __str__(self) -> str:
        if self.problems == (self,):
            return super().__str__()
        return "\n".join(str(problem) for problem in self.problems)


class UsageError(WeighbridgeError):
    """A command line that asks for something that cannot be."""

    exit_code = 2


class LaneError(WeighbridgeError):
    """A lane that this host cannot decide."""

    exit_code = 3


class SubjectError(WeighbridgeError):
    """A subject that cannot be read: missing, malformed, or hostile. `where` ends in the byte offset where known."""


class PluginError(WeighbridgeError):
    """Something of another package that cannot be used: two of one name, not importable, or of another shape."""


class EngineError(WeighbridgeError):
    """An engine that cannot be reached."""


class BundleError(WeighbridgeError):
    """A bundle or ledger that cannot be read or written."""


class LedgerError(WeighbridgeError):
    """A move of status that is refused; its code names the missing thing."""

    exit_code = 1


class AmendmentError(WeighbridgeError):
    """A section of a spec that claims what the evidence does not hold, or that cannot land."""

    exit_code = 1
