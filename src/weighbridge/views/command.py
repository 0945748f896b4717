"""A command as a subject: an argument vector, and the folder that its relative names start from. Runs nothing."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from weighbridge.core import Origin, SubjectError, dataclass, dumps, field, is_file, replace, sha256

MAX_FILE = 1 << 26  # a larger argument is data, not the program


def open_command(line: str) -> "CommandView":
    """Split a command line as a shell would, without running one; refuse a quotation that is not closed."""
    try:
        return CommandView(tuple(shlex.split(line)))
    except ValueError as problem:
        what = f"the command cannot be split into words: {str(problem).lower()}"
        raise SubjectError("command-form", what, remedy="close the quotation") from None


@dataclass(frozen=True, slots=True)
class CommandView:
    """A command that a person bound; `base` is where that person stands."""

    argv: tuple[str, ...]
    base: Path = field(default_factory=Path.cwd)
    origin: ClassVar = Origin.LIVE  # it is run here and now

    def overlaid(self, argv: tuple[str, ...]) -> "CommandView":
        """Return another command, from the same place."""
        return replace(self, argv=argv)

    def resolved(self) -> tuple[str, ...]:
        """Return the program, found, and files from `base`, absolute; refuse with `no-command`, `command-not-found`."""
        if not self.argv:
            raise SubjectError("no-command", "the command has no words", remedy="bind it: --subject NAME='program …'")
        program, *arguments = self.argv
        found = shutil.which(str(self.base / program) if "/" in program else program)
        if found is None:
            what = f"{program!r} is not a program that can be run"
            remedy = "name a program on PATH, or its path from where you stand"
            raise SubjectError("command-not-found", what, where=program, remedy=remedy)
        return (found, *(self._absolute(argument) for argument in arguments))

    def _absolute(self, argument: str) -> str:
        """Make a file that is named from `base` absolute; a bare word such as `train` may be a subcommand and stays."""
        if "/" not in argument and "." not in argument.strip("."):
            return argument
        path = self.base / argument
        return str(path) if is_file(path) else argument

    def digest(self) -> Mapping[str, str]:
        """Return the SHA-256 of the arguments, and of every file that they name."""
        digests = {"argv": sha256(dumps(list(self.argv)))}
        for argument in self.argv[1:]:
            path = Path(self._absolute(argument))
            if path.is_absolute() and is_file(path) and path.stat().st_size <= MAX_FILE:
                digests[path.name] = sha256(path.read_bytes())
        return digests
