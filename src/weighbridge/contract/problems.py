"""What is wrong with a contract, collected so that all of it is told at once, in the order of the file."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from weighbridge.contract.strict_yaml import collected
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
        """Return it as an error that can be raised."""
        return ContractError(self.code, self.what, where=f"{self.file}:{self.line}:{self.column}", remedy=self.remedy)

    def __str__(self) -> str:
        told = str(self.error)
        return told.replace(f": {self.code} ", f": warning: {self.code} ", 1) if self.warning else told


def from_errors(errors: Iterable[ContractError]) -> tuple[Found, ...]:
    """Return problems from errors whose `where` ends in line and column."""
    problems = []
    for one in errors:
        at = re.fullmatch(r"(.*):(\d+):(\d+)", one.where, re.DOTALL)
        file, line, column = (at[1], int(at[2]), int(at[3])) if at else (one.where, 1, 1)
        problems.append(Found(file=file, line=line, column=column, code=one.code, what=one.what, remedy=one.remedy))
    return tuple(problems)


def first_errors(problems: Iterable[Found]) -> Iterator[Found]:
    """Yield problems until there are more errors than are shown."""
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
