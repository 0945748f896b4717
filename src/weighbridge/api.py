"""The verbs as functions of Python: they do what the command line does, return values, and print nothing.

What cannot be is raised as a `WeighbridgeError`, with `code`, `what`, `where`, `remedy` and the `exit_code` of the
command line. `spec/python-api.md` shows each name in use.
"""

import datetime as dt
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from weighbridge.core import ExitCode, Finding, Json, Outcome, dataclass

if TYPE_CHECKING:
    from weighbridge.evaluation.inspection import Inspection
    from weighbridge.evaluation.verification import ContractResult
    from weighbridge.evidence.review import Answers
    from weighbridge.quantities.tensors import TensorPair

PathLike = str | os.PathLike[str]


class Answer:
    """What a verb came to. It is neither true nor false: `assert compare(…)` would pass whatever was found."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        """Refuse to be taken for a verdict, with a TypeError."""
        raise TypeError(f"a {type(self).__name__} is neither true nor false: ask its `passed`, and print its `report`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Answer):
    """One import compared with its source; `outcome` is the worst that counts, `tensors` are those of either side.

    `report` is what the command line prints of it, `answer` its last line.
    """

    outcome: Outcome
    answer: str
    report: str
    finding: Finding
    configuration: Finding
    tensors: "tuple[TensorPair, ...]"

    @property
    def passed(self) -> bool:
        """Return whether the import is what the policy means, and its configuration the source's."""
        return self.outcome is Outcome.PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(Answer):
    """What one `verify` came to: a result for each contract, and the exit code of the command line.

    `report` is what the command line prints of the gates.
    """

    results: "tuple[ContractResult, ...]"
    exit_code: ExitCode
    report: str

    @property
    def passed(self) -> bool:
        """Return whether a gate passed, and every other required one did or was expected to be blocked."""
        return self.exit_code is ExitCode.PASSED

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return the findings of all contracts, in order."""
        return tuple(finding for result in self.results for finding in result.evaluation.findings)


def compare(
    source: PathLike, candidate: PathLike, *, policy: str | None = None, mapping: PathLike | None = None,
    headers: bool = False, may_differ: Sequence[str] = (), may_ignore: Sequence[str] = (),
) -> Comparison:  # fmt: skip
    """Compare a checkpoint with its source, as `weighbridge compare` does; it needs no contract and writes nothing."""
    from weighbridge.evaluation.import_comparison import compare, mapping_of, policy_of
    from weighbridge.report import comparison

    look: dict[str, Json] = {"headers": True} if headers else {}
    if mapping is not None:
        look |= mapping_of(os.fspath(mapping), os.fspath(source), [os.fspath(candidate)])
    given = policy_of(policy) if policy is not None else None
    meant: Any = {"look": look, "may_differ": tuple(may_differ), "may_ignore": tuple(may_ignore)}
    (one,) = compare(os.fspath(source), [os.fspath(candidate)], policy=given, **meant)
    finding, configuration = one.evaluation.findings
    shown: Any = {"tensors": "*", "everything": False, "headers": headers, "moments": {}, "passes": lambda _look: False}
    return Comparison(
        outcome=comparison.outcome(one.evaluation),
        answer=comparison.answer(one),
        report=_plain((f"{os.fspath(source)} -> {one.path}", *comparison.comparison_lines(one, **shown))),
        finding=finding,
        configuration=configuration,
        tensors=one.pairs,
    )


def inspect(target: PathLike, *, headers: bool = False) -> "Inspection":
    """Look at a checkpoint or a run log by itself, as `weighbridge inspect` does; this is no verdict."""
    from weighbridge.evaluation import inspection
    from weighbridge.report import verdict_lines

    return inspection.inspect(os.fspath(target), verdict_lines, headers=headers)


def verify(
    contract: PathLike, *more: PathLike, subjects: Mapping[str, PathLike] = MappingProxyType({}),
    params: Mapping[str, str] = MappingProxyType({}), gates: Sequence[str] = (), expect_blocked: Collection[str] = (),
    evidence: PathLike | None = None, record: bool = False,
) -> Verification:  # fmt: skip
    """Check subjects against contracts, as `weighbridge verify` does, and write a bundle of evidence for each.

    `subjects` is by NAME or NAME@INSTANCE. Without `evidence`, bundles go into the project's `.weighbridge`, or with
    `record` into `evidence`, which holds the ledger, too.
    """
    from weighbridge.cli.verify import lines_of
    from weighbridge.core.project import local
    from weighbridge.evaluation.verification import VerifyRequest, code_of, verify
    from weighbridge.report.rows import report_of

    names = tuple(os.fspath(one) for one in (contract, *more))
    bound = tuple(f"{name}={os.fspath(target)}" for name, target in subjects.items())
    recorded = Path(evidence or "evidence")
    request = VerifyRequest(
        contracts=names,
        subjects=bound,
        params=params,
        gates=tuple(gates),
        expect_blocked=frozenset(expect_blocked),
        evidence=recorded if evidence or record else local(),
        ledger=recorded / "ledger",
        record=record,
        command=("weighbridge.verify", *names, *(word for text in bound for word in ("--subject", text))),
    )
    results = verify(request, lambda _text: None)
    code = code_of(results, request.excuses)
    report = report_of(results, code, request.excuses)
    return Verification(results=results, exit_code=code, report=_plain(lines_of(results, report, request)))


def rejudge(bundle: PathLike, *, id: str = "") -> "Answers":  # noqa: A002 -- as `evidence verify --id` calls it
    """Judge a bundle again and answer as `weighbridge evidence verify` does; `id` is its own, or the first digits."""
    from weighbridge.evidence.review import Against, verify

    return verify(Path(bundle), Against(now=dt.datetime.now(dt.UTC), given=id))


def _plain(lines: Iterable[str]) -> str:
    from click import unstyle

    from weighbridge.core import singular

    return "\n".join(singular(unstyle(line)) for line in lines)
