"""What is wrong with a contract, collected so that all of it is told at once, in the order of the file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from weighbridge.contract.strict_yaml import Document, Path, collected
from weighbridge.errors import ContractError

TOLD: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Found:
    """One problem, or with `warning` one remark that stops nothing, at its place; lines and columns count from 1."""

    file: str
    line: int
    column: int
    code: str
    what: str
    remedy: str = ""
    warning: bool = False

    @property
    def error(self) -> ContractError:
        """Make it an error that can be raised."""
        return ContractError(self.code, self.what, where=f"{self.file}:{self.line}:{self.column}", remedy=self.remedy)

    def __str__(self) -> str:
        told = str(self.error)
        return told.replace(f": {self.code} ", f": warning: {self.code} ", 1) if self.warning else told


def found(
    document: Document,
    path: Path,
    code: str,
    what: str,
    remedy: str = "",
    *,
    at_key: bool = False,
    warning: bool = False,
) -> Found:
    """Note a problem at its place in a document."""
    line, column = document.position(path, at_key=at_key)
    return Found(file=document.where, line=line, column=column, code=code, what=what, remedy=remedy, warning=warning)


def from_errors(errors: Iterable[ContractError]) -> tuple[Found, ...]:
    """Take over errors whose `where` ends in line and column."""
    return tuple(_from_error(error) for error in errors)


def _from_error(error: ContractError) -> Found:
    file, _, rest = error.where.rpartition(":")
    file, _, line = file.rpartition(":")
    if not (line.isdigit() and rest.isdigit()):
        file, line, rest = error.where, "1", "1"
    return Found(file=file, line=int(line), column=int(rest), code=error.code, what=error.what, remedy=error.remedy)


def first_errors(problems: Iterable[Found]) -> Iterator[Found]:
    """Give problems until there are more errors than are told."""
    errors = 0
    for problem in problems:
        yield problem
        errors += not problem.warning
        if errors > TOLD:
            return


def raise_errors(problems: Iterable[Found]) -> None:
    """Raise all that are no warnings as one error, or return where there are none.

    Raises:
        ContractError: with the first hundred errors, sorted by place.
    """
    errors = sorted({problem for problem in problems if not problem.warning})
    if len(errors) > TOLD:
        last = errors[TOLD - 1]
        errors[TOLD - 1 :] = [dataclasses.replace(last, remedy="there is more; only the first hundred are told")]
    if errors:
        raise collected(tuple(problem.error for problem in errors))
