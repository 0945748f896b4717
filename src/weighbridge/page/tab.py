"""A tab of the page and its parts, and in words what the gates that read a picture came to."""

from collections.abc import Sequence

from weighbridge.core import Outcome, dataclass, singular
from weighbridge.page.sources import Judged
from weighbridge.report import NAMED, SIGNS, capped, gate_name

WORST = (Outcome.ERROR, Outcome.FAIL, Outcome.BLOCKED, Outcome.PASS)
NOT_JUDGED = "Not judged: no gate reads it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A picture with its caption, a table, or a sentence."""

    picture: str = ""
    caption: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    bad: frozenset[int] = frozenset()  # of the rows
    filtered: bool = False
    of: Sequence[Judged] = ()  # what is seen in it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One question: the gates that ask it, what there is to say beside them, and what is shown."""

    id: str
    question: str
    judged: Sequence[Judged]
    more: str = ""
    parts: Sequence[Part] = ()

    @property
    def outcome(self) -> Outcome | None:
        """Return the worst outcome of its gates."""
        return worst(self.judged)

    @property
    def sign(self) -> str:
        """Return the sign of its outcome."""
        return SIGNS[self.outcome] if self.outcome else "–"

    @property
    def answer(self) -> str:
        """Return what its gates came to."""
        return f"{counted(self.judged) or 'No gate judges this.'} {self.says}".strip()

    @property
    def says(self) -> str:
        """Return what there is to say, or at least which of its gates failed."""
        failed = [one.row for one in self.judged if one.outcome is Outcome.FAIL and not one.waits]
        said = list(dict.fromkeys(f"{gate_name(row.finding)} ({row.title})" for row in failed))
        return self.more or (f"Failed: {', '.join(capped(said, NAMED))}." if said else "")


def worst(judged: Sequence[Judged]) -> Outcome | None:
    """Return the worst outcome, none where no gate looked; one that is not judged yet is no PASS."""
    found = {Outcome.BLOCKED if one.waits else one.outcome for one in judged}
    return next((one for one in WORST if one in found), None)


def counted(judged: Sequence[Judged]) -> str:
    """Return how many gates came to what, and what the first of the worst says."""
    words = {Outcome.ERROR: "broken", Outcome.FAIL: "failed", Outcome.BLOCKED: "blocked (not looked at)"}
    words |= {Outcome.PASS: "passed", Outcome.NOT_APPLICABLE: "not applicable"}
    many = {word: sum(one.outcome is outcome and not one.waits for one in judged) for outcome, word in words.items()}
    many["not judged yet"] = sum(one.waits for one in judged)
    said = ", ".join(f"{count} {word}" for word, count in many.items() if count)
    gates = len({(one.bundle.contract.id, one.row.finding.gate) for one in judged})
    verdicts = f"Of {len(judged)} verdicts by " if len(judged) > gates else "Of "
    return singular(f"{verdicts}{gates} gates: {said}.") if judged else ""


def said_by(judged: Sequence[Judged]) -> str:
    """Return which gates read a picture and what they came to, the worst first; or that none does."""
    looking = [one for one in by_outcome(judged) if one.outcome is not Outcome.NOT_APPLICABLE]
    names = [f"{one.word} {gate_name(one.row.finding)}" for one in looking]
    return f"{', '.join(capped(names, NAMED))}." if names else NOT_JUDGED


def by_outcome(judged: Sequence[Judged]) -> list[Judged]:
    """Return them with the worst first."""
    order = [*WORST, Outcome.NOT_APPLICABLE]
    return sorted(judged, key=lambda one: order.index(one.outcome))
