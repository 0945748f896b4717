"""What is measured of a report that a test runner wrote."""

from __future__ import annotations

import enum
from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.quantities.base import rows


class Result(enum.StrEnum):
    """How a test ended, from best to worst."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTest:
    """One test, as the report has it; where it stands there several times, its worst result."""

    name: Annotated[str, Doc("`classname::name`; its name where these are one", typical="gate::falsify_a")]
    result: Annotated[Result, Doc("how it ended", typical=Result.PASSED)]
    message: Annotated[str, Doc("what it failed or was skipped with, its first line", typical="")]
    times: Annotated[int, Doc("how often it stands in the report", typical=1)]
    contradicted_by: Annotated[
        tuple[str, ...], Doc("counts of the suites that it is in, which differ from what is in them", typical=())
    ]


QUANTITIES = (rows("test_results", ReportedTest),)
