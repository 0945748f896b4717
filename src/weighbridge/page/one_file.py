"""The page as one file: template, style and script with their digests in its own content policy."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from weighbridge.core import Outcome, UsageError, __version__, printable
from weighbridge.page.sources import Judged, Sources, checked_by
from weighbridge.page.tab import counted, worst
from weighbridge.page.tabs import hints_of, tabs
from weighbridge.report import SIGNS, gate_name

UNDRAWN = b'data-digest=""'  # in a live page, where the digest of the page around it is written
HERE = Path(__file__).parent
PASSED = (Outcome.PASS, Outcome.NOT_APPLICABLE)
ORDER = (Outcome.FAIL, Outcome.ERROR, Outcome.BLOCKED, *PASSED)  # of the cards
ANSWERS = {Outcome.PASS: "Yes.", Outcome.FAIL: "No.", Outcome.ERROR: "No.", Outcome.BLOCKED: "Not known."}


def page(given: Sources, live: str = "") -> bytes:
    """Return the page; the same bundles give the same bytes. With a note on a run that goes on it asks for news."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        what, remedy = "the page needs Jinja2, which is not installed", "pip install 'weighbridge[report]'"
        raise UsageError("needs-extra", what, remedy=remedy) from None
    files = ("page.css", "page.js", "live.js") if live else ("page.css", "page.js")
    style, *scripts = (HERE.joinpath(name).read_text(encoding="utf-8").strip() for name in files)
    policy = f"style-src {_digest(style)}; script-src {' '.join(map(_digest, scripts))}"
    loader = FileSystemLoader(HERE)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"plain": printable, "drawn": Markup}
    outcome, asked = worst(given.judged), tabs(given)
    shown = [tab for tab in asked if tab.judged or tab.parts]
    links = {id(one): tab for tab in shown for part in tab.parts for one in part.of}
    links |= {id(one): tab for tab in shown if tab.parts for one in tab.judged}
    judged = sorted(given.judged, key=lambda one: (ORDER.index(one.outcome), one.row.finding.severity != "required"))
    waits = outcome is Outcome.BLOCKED and all(one.waits for one in judged if one.outcome is outcome)
    counts = [one for one in judged if one.row.finding.severity == "required" or one.outcome is Outcome.ERROR]
    decides = worst(counts) or outcome  # as in an exit code
    aside = _aside([one for one in judged if one not in counts]) if decides is Outcome.PASS else ""
    numbers = {id(one): at for at, one in enumerate(judged, 1)}
    contracts = sorted({f"{one.contract.id} {one.contract.version}" for one in given.bundles})
    text: str = made.get_template("page.html").render(
        title=" · ".join([*filter(None, ["run " * (given.run_name not in ("", "run")) + given.run_name]), *contracts]),
        bundles=given.bundles,
        dates=sorted({one.statement.finished[:10] for one in given.bundles}),
        answer=f"{'Not known yet.' if waits else ANSWERS[decides or Outcome.BLOCKED]}{aside} {counted(judged)}",
        outcome=decides,
        name=lambda one: gate_name(one.row.finding),
        signs=SIGNS,
        sign=SIGNS[decides] if decides else "–",
        cards=[one for one in judged if one.outcome not in PASSED],
        passes=[one for one in judged if one.outcome in PASSED],
        hints_of=hints_of,
        tabs=shown,
        unasked=[tab.question for tab in asked if not (tab.judged or tab.parts)],
        link=lambda one: links.get(id(one)),
        number=lambda one: numbers[id(one)],
        gates=lambda tab: sorted(tab.judged, key=lambda one: numbers[id(one)]),
        checked_by=checked_by,
        version=__version__,
        style=style,
        scripts=scripts,
        policy=f"default-src 'none'; img-src data:; {policy}" + ("; connect-src 'self'" if live else ""),
        live=live,
    )
    return text.encode(errors="replace")


def _aside(advisory: Sequence[Judged]) -> str:
    """Return what came of what does not decide, where that is no pass."""
    did = {Outcome.FAIL: "failed", Outcome.BLOCKED: "could not look"}
    came = [words for outcome, words in did.items() if any(one.outcome is outcome for one in advisory)]
    return f" What is advisory {' or '.join(came)}." if came else ""


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
