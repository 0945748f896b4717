"""test_results: how each test of a report ended, as the runner that wrote it says."""

from xml.parsers import expat

from weighbridge.core import Basis, Fields, Measurement, SubjectKind, Unmeasured, replace
from weighbridge.quantities.commands import ReportedTest, Result
from weighbridge.run_logs.junit_xml import WORST, documents, entries, full_name, plain
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name, table
from weighbridge.views.test_cases import ReportView

MARK = "weighbridge canary"
ADDED = {  # the tests of the suite that the canary adds to the others, each there twice, and how they ended
    f"{MARK} passed": ("", Result.PASSED),
    f"{MARK} skipped": ("<skipped/>", Result.SKIPPED),
    f"{MARK} failed": ('<failure message="seen"/>', Result.FAILED),
    f"{MARK} error": ("<error/>", Result.ERROR),
}
SUITE = f'<testsuite name="{MARK}" tests="4" failures="1" errors="1" skipped="1">'
DOUBTS = (f"suite '{MARK}' says that 3 tests ran, 6 in it did", f"suite '{MARK}' says that 2 failed, 4 in it did")


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Read the report, and gather each test's worst result."""
    view: ReportView = views[0]
    found: dict[str, ReportedTest] = {}
    for one in entries(view.data, view.path):
        before = found.get(one.name)
        worst = before if before and WORST.index(before.result) >= WORST.index(one.result) else one
        times = before.times + 1 if before else 1
        doubts = tuple(dict.fromkeys((*(before.contradicted_by if before else ()), *one.contradicted_by)))
        found[one.name] = ReportedTest(
            name=one.name, result=worst.result, message=worst.message, times=times, contradicted_by=doubts
        )
    return table("test_results", list(found.values()), at="end of the test run", basis=Basis.REPORTED)


def extent(views: Views, _options: Fields) -> int:
    """Count the names of tests, by another reader."""
    return len(_places(views[0]))


def _places(view: ReportView) -> dict[str, tuple[int, int]]:
    """Return where the last test of each name begins: its document, and the byte in it."""
    places: dict[str, tuple[int, int]] = {}
    for at, document in enumerate(documents(view.data)):
        parser = expat.ParserCreate()

        def start(tag: str, said: dict[str, str], at: int = at, parser: expat.XMLParserType = parser) -> None:
            if plain(tag) == "testcase":
                said = {plain(key): value for key, value in said.items()}
                places[full_name(said)] = at, parser.CurrentByteIndex

        parser.StartElementHandler = start
        parser.Parse(document, True)
    return places


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary | NoCanary:
    """Add a suite before the last test: four tests, one of each result, twice, where it declares them once."""
    view: ReportView = views[0]
    places = _places(view)
    if not places:
        return NoCanary("the report holds no test")
    document, byte = max(places.values())
    tests = "".join(f'<testcase name="{name}">{inside}</testcase>' for name, (inside, _) in ADDED.items())
    parts = documents(view.data)
    head, tail = parts[document][:byte], parts[document][byte:]
    parts[document] = head + f"{SUITE}{tests}{tests}</testsuite>".encode() + tail
    expected = [(result, 2, "seen" if result is Result.FAILED else "", DOUBTS) for _, result in ADDED.values()]

    def seen(again: Measurement | Unmeasured) -> bool:
        found = rows_by_name(again)
        rows = [found[name] for name in ADDED]
        measured = [(row.result, row.times, row.message, row.contradicted_by[:2]) for row in rows]
        return found.keys() == {*places, *ADDED} and measured == expected

    damaged = replace(view, data=b"".join(parts))
    return Canary(name="a suite that holds what it does not declare", place=MARK, views=(damaged,), seen=seen)


VERIFIER = Verifier(quantity="test_results", kinds=(SubjectKind.REPORT,), measure=measure, extent=extent, canary=canary)
