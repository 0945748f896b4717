"""corpus-wrap-around: was the corpus passed over on purpose, each wrap told once, and was every step a real one?

An iterator that ran dry goes on with placeholders: losses that stand still, steps too quick to have trained. Tokens,
epochs and coverage are held against each other, so that a wrap that nobody told shows in at least one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.kind import (
    Evidence,
    Kind,
    Mutated,
    Mutation,
    Need,
    blocked,
    failed,
    passed,
    record_of,
    rows_of,
    with_rows,
    with_value,
)
from weighbridge.clauses.mutations import Limit, Moves, in_record, in_rows
from weighbridge.core.limits import Doc, plain
from weighbridge.core.model import Fields, Offence, Outcome, Record, SubjectKind, Verdict
from weighbridge.gates.families import column_basis
from weighbridge.quantities.runs import CorpusEpoch, CorpusProgress, Coverage, EqualLosses, QuickSteps

SAMPLED = "sampled"  # batches drawn at random: tokens are counted, and nothing is passed over in order
FINGERPRINTS = (1.0, math.e, 0.0)  # what stands in for a loss, its exponential, and nothing at all
FINGERPRINT_SHARE = 1e-6  # float32 keeps so much of e

# --- How what a limit bounds is broken --------------------------------------------------------------------------------


Way: TypeAlias = Callable[[CorpusProgress, int, Any], CorpusProgress | None]  # with the count of epochs and the value


def _moves(code: str, place: str, ways: Mapping[str, Way]) -> Moves:
    """Return how to move the progress through the corpus, in each of these ways."""

    def moves(limit: Limit) -> Iterator[Mutation[Any]]:
        for name, way in ways.items():

            def apply(evidence: Evidence, _limits: Any, _places: Sequence[str], way: Way = way) -> Mutated | str:
                progress, epochs = (
                    record_of(evidence, "progress", CorpusProgress),
                    rows_of(evidence, "epochs", CorpusEpoch),
                )
                moved = way(progress, len(epochs), limit.value) if progress else None
                if moved is None:
                    return "no such number of tokens"
                return Mutated(with_value(evidence, "progress", Record(moved)), frozenset({place}))

            yield Mutation(name, code, apply)

    return moves


def _equal(progress: CorpusProgress, **changed: Any) -> CorpusProgress:
    """Return the progress with one more run of equal losses, between two that are harmless."""
    harmless = EqualLosses(
        first_step=0, last_step=1, length=2, loss=2.5, grad_norm=1.0, grad_norm_equal=False, last_row=False,
        jump=1e9, changes=1e9,
    )  # fmt: skip
    return replace(
        progress, equal_losses=(*progress.equal_losses, harmless, replace(harmless, **changed), harmless)
    )  # fmt: skip


def _holding(loss: float, *, norm_too: bool = False) -> Way:
    return lambda progress, _, length: _equal(progress, length=length, loss=loss, grad_norm_equal=norm_too)


def _too_quick(progress: CorpusProgress, _epochs: int, share: float) -> CorpusProgress:
    below = math.nextafter(share * 100.0, 0.0)
    return replace(progress, quick=QuickSteps(first_step=7, last_step=9, length=3, below_ms=below, above_ms=100.0))


def _off(sign: int) -> Way:
    def moved(progress: CorpusProgress, epochs: int, slack: float) -> CorpusProgress | None:
        off = sign * slack * epochs * (progress.tokens_per_step or 0)
        tokens = math.nextafter((progress.tokens_expected or 0) + off, sign * math.inf)
        return replace(progress, tokens=tokens) if tokens > 0 else None

    return moved


PLACEHOLDERS: Mapping[str, Way] = {
    "a loss of 1": _holding(1.0),
    "a loss of e": _holding(math.e * (1 - 0.99 * FINGERPRINT_SHARE)),
    "a loss of 0": _holding(0.0),
    "loss and gradient norm stand still": _holding(2.5, norm_too=True),
}
OFF: Mapping[str, Way] = {"more than steps account for": _off(1), "fewer than steps account for": _off(-1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an epoch, a pass over the corpus, may look like."""

    placeholder_steps: Annotated[
        int,
        Doc("so many equal losses in a row that are 1, e or 0, or with equal gradient norms", ge=2, le=16,
            must="below", moves=_moves("placeholder", "loss", PLACEHOLDERS)),
    ] = 3  # fmt: skip
    max_equal_losses: Annotated[
        int,
        Doc("most equal losses in a row that rounding does not explain", ge=1, le=64, must="at most",
            moves=_moves("constant-loss", "loss", {"the loss stands still": _holding(2.5)})),
    ] = 7  # fmt: skip
    min_step_share: Annotated[
        float | None,
        Doc("three steps in a row must not all take less than this share of all others", ge=0.01, lt=1, tight="up",
            moves=_moves("impossible-speed", "speed", {"three steps too quick to have trained": _too_quick})),
    ] = 0.2  # fmt: skip
    slack_steps: Annotated[
        float,
        Doc("steps' worth of tokens an epoch that may be missing or over", ge=0, le=1000, tight="down",
            moves=_moves("tokens-mismatch", "tokens", OFF)),
    ] = 1.0  # fmt: skip
    min_pass_share: Annotated[
        float, Doc("share of the corpus that a complete epoch must have seen, a step less", ge=0.5, le=1, tight="up")
    ] = 0.9


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold losses, speed, tokens, coverage and every epoch against each other and against the wraps that were told."""
    progress, epochs = record_of(evidence, "progress", CorpusProgress), rows_of(evidence, "epochs", CorpusEpoch)
    unknown = _unknown(progress, epochs, limits)
    if progress is None:
        return blocked(unknown, dict.fromkeys(TOLD))
    placeholders = list(_losses(progress, limits))
    if unknown and placeholders:  # what is broken beyond doubt is not hidden by what is not known
        return failed(placeholders, looked=["loss"], unit="wraps")
    if unknown:
        return blocked(unknown, {key: getattr(progress, key) for key in TOLD})
    offences = [
        *placeholders,
        *_speed(progress, limits),
        *_tokens(progress, limits, len(epochs)),
        *_coverage(progress),
        *_epochs(epochs, progress, limits),
    ]
    speed = [] if limits.min_step_share is None else ["speed"]
    looked = ["loss", *speed, "tokens", "coverage", *(row.epoch for row in epochs)]
    figures = {key: getattr(progress, key) for key in ("tokens", "tokens_from", "corpus_tokens", "steps")}
    figures |= {
        "by": epochs[0].by,
        **_wraps(epochs),
        "passes": _known(progress.tokens) / _known(progress.corpus_tokens),
    }
    if offences:
        return failed(offences, looked=looked, unit="wraps", measured=len(epochs) - 1, figures=figures)
    return passed(looked=looked, unit="wraps", measured=len(epochs) - 1, figures=figures)


TOLD = (
    "corpus_tokens", "tokens", "tokens_per_step", "largest_gap", "losses", "steps", "steps_without_loss",
    "first_without_loss", "steps_without_time", "first_without_time", "failures", "announced_steps",
)  # fmt: skip


def _unknown(progress: CorpusProgress | None, epochs: Sequence[CorpusEpoch], limits: Limits) -> str:
    """Return the code of what is not known and must be, or an empty text."""
    if not epochs or progress is None or not progress.corpus_tokens:
        return "unknown-corpus" if epochs else "no-passes"
    if None in (progress.tokens, progress.tokens_expected):
        return "unknown-tokens"
    if progress.largest_gap > 1:
        return "steps-left-out"
    if progress.steps_without_loss or not progress.losses:
        return "no-losses"
    if limits.min_step_share is not None and progress.steps_without_time:
        return "no-wall-time"
    if progress.failures:
        return "recorder-failure"
    return "" if progress.announced_steps in (None, progress.steps) else "steps-not-recorded"


def _known(value: float | None) -> float:
    """Return a number, or NaN where it is unknown: no bound accepts that."""
    return math.nan if value is None else value


def _wraps(epochs: Sequence[CorpusEpoch]) -> Fields:
    return {"wraps": len(epochs) - 1, "logged": sum(row.events + row.stray for row in epochs)}


def _losses(progress: CorpusProgress, limits: Limits) -> Iterator[Offence]:
    for run in progress.equal_losses:
        if column_basis.is_rounding(run.length, min(run.jump, run.changes), progress.losses, chance=1.0):
            continue
        stand_in = any(abs(run.loss - known) <= FINGERPRINT_SHARE * known for known in FINGERPRINTS)
        if run.length >= limits.placeholder_steps and (stand_in or run.grad_norm_equal is True):
            yield Offence(place="loss", code="placeholder", figures=plain(run))
        elif run.length > limits.max_equal_losses:
            yield Offence(place="loss", code="constant-loss", figures=plain(run))


def _speed(progress: CorpusProgress, limits: Limits) -> Iterator[Offence]:
    share, quick = limits.min_step_share, progress.quick
    if share is not None and quick is not None and not quick.below_ms >= share * quick.above_ms:
        figures = {**plain(quick), "share": share, "from": progress.speed_from}
        yield Offence(place="speed", code="impossible-speed", figures=figures)


def _tokens(progress: CorpusProgress, limits: Limits, epochs: int) -> Iterator[Offence]:
    expected = _known(progress.tokens_expected)
    slack = limits.slack_steps * epochs * _known(progress.tokens_per_step)
    if not expected - slack <= _known(progress.tokens) <= expected + slack:
        kept = ("tokens", "tokens_expected", "tokens_per_step", "steps", "tokens_from")
        figures = {key: getattr(progress, key) for key in kept}
        yield Offence(place="tokens", code="tokens-mismatch", figures={**figures, "slack": slack})


def _coverage(progress: CorpusProgress) -> Iterator[Offence]:
    over = _known(progress.tokens) > _known(progress.corpus_tokens)
    for told in progress.coverage:
        if over and told.full is not None and told.last == told.full and told.still > 1:
            figures = {**plain(told), "tokens": progress.tokens, "corpus_tokens": progress.corpus_tokens}
            yield Offence(place="coverage", code="clamped-coverage", figures=figures)


def _epochs(epochs: Sequence[CorpusEpoch], progress: CorpusProgress, limits: Limits) -> Iterator[Offence]:
    corpus, step = _known(progress.corpus_tokens), _known(progress.tokens_per_step)
    for row in epochs:
        tokens = _known(row.tokens)
        broken = {
            "unlogged": row.number > 1 and not row.events,
            "logged-twice": row.events > 1,
            "unfounded": row.stray > 0,
            "long-pass": row.by != SAMPLED and not tokens <= corpus + step,
            "short-pass": row.complete and not tokens + step >= limits.min_pass_share * corpus,
        }
        figures = {**plain(row), **_wraps(epochs), "corpus_tokens": progress.corpus_tokens}
        yield from (Offence(place=row.epoch, code=code, figures=figures) for code, is_so in broken.items() if is_so)


# --- How what no limit bounds alone is broken -------------------------------------------------------------------------


def _clamped(progress: CorpusProgress, _limits: Limits) -> CorpusProgress:
    tokens = max(progress.tokens or 0, 2)
    clamped = Coverage(column="coverage", full=1.0, last=1.0, max=1.0, still=2, since_step=0)
    honest = replace(clamped, last=0.5, max=0.5)
    corpus = max(math.ceil(tokens) - 1, 1)
    return replace(progress, tokens=tokens, corpus_tokens=corpus, coverage=(honest, clamped, honest))


def _silent_wrap(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Mutated | str:
    """Add one epoch more that no event announces."""
    rows = rows_of(evidence, "epochs", CorpusEpoch)
    if rows[0].by == SAMPLED:
        return "batches drawn at random do not wrap"
    name = f"epoch {len(rows) + 1}"
    added = replace(rows[-1], epoch=name, number=len(rows) + 1, events=0, stray=0, complete=False)
    return Mutated(with_rows(evidence, "epochs", (*rows, added)), frozenset({name}))


def _of_length(
    name: str, code: str, tokens: Callable[[CorpusProgress, Limits], float], *, complete: bool
) -> Mutation[Limits]:
    """Return the mutation that gives epochs another length in tokens; `tokens` returns it."""

    def damage(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
        progress = record_of(evidence, "progress", CorpusProgress)

        def change(row: CorpusEpoch, _limits: Limits) -> CorpusEpoch | None:
            length = tokens(progress, limits) if progress else 0
            bounded = length > 1 and (complete or row.by != SAMPLED)
            return replace(row, tokens=length, complete=row.complete or complete) if bounded else None

        why = "a step is as long as an epoch"
        return in_rows(name, code, "epochs", CorpusEpoch, change, why=why)(evidence, limits, places)

    return Mutation(name, code, damage)


def _too_long(progress: CorpusProgress, _limits: Limits) -> float:
    return math.nextafter((progress.corpus_tokens or 0) + (progress.tokens_per_step or 0), math.inf)


def _too_short(progress: CorpusProgress, limits: Limits) -> float:
    least = limits.min_pass_share * (progress.corpus_tokens or 0)
    return math.nextafter(least, 0.0) - (progress.tokens_per_step or 0)


def _told(name: str, code: str, **changed: int) -> Mutation[Limits]:
    """Return the mutation that tells the wrap before an epoch otherwise."""

    def change(row: CorpusEpoch, _limits: Limits) -> CorpusEpoch | None:
        return replace(row, **changed) if row.number > 1 or "stray" in changed else None  # type: ignore[arg-type]

    return in_rows(name, code, "epochs", CorpusEpoch, change, why="the run did not wrap")


def _unmeasured(name: str, code: str, **changed: int | None) -> Mutation[Limits]:
    def change(progress: CorpusProgress, limits: Limits) -> CorpusProgress | None:
        asked = code != "no-wall-time" or limits.min_step_share is not None
        return replace(progress, **changed) if asked else None  # type: ignore[arg-type]

    why = "the contract does not bound the speed"
    return in_record(
        name, code, "progress", CorpusProgress, change, place="", why=why, outcome=Outcome.BLOCKED
    )  # fmt: skip


KIND = Kind(
    name="corpus-wrap-around",
    version=3,
    roles={"run": SubjectKind.RUN},
    needs={"progress": Need("corpus_progress", of=("run",)), "epochs": Need("corpus_epochs", of=("run",))},
    limits=Limits,
    codes={
        "placeholder": Outcome.FAIL,
        "constant-loss": Outcome.FAIL,
        "impossible-speed": Outcome.FAIL,
        "tokens-mismatch": Outcome.FAIL,
        "clamped-coverage": Outcome.FAIL,
        "unlogged": Outcome.FAIL,
        "logged-twice": Outcome.FAIL,
        "unfounded": Outcome.FAIL,
        "long-pass": Outcome.FAIL,
        "short-pass": Outcome.FAIL,
        "no-passes": Outcome.BLOCKED,
        "unknown-corpus": Outcome.BLOCKED,
        "unknown-tokens": Outcome.BLOCKED,
        "steps-left-out": Outcome.BLOCKED,
        "no-losses": Outcome.BLOCKED,
        "recorder-failure": Outcome.BLOCKED,
        "steps-not-recorded": Outcome.BLOCKED,
        "no-wall-time": Outcome.BLOCKED,
    },
    judge=judge,
    mutations=(
        in_record(
            "coverage clamped at full", "clamped-coverage", "progress", CorpusProgress, _clamped, place="coverage"
        ),
        Mutation("a silent wrap more", "unlogged", _silent_wrap),
        _told("a wrap that no event tells", "unlogged", events=0),
        _told("a wrap told twice", "logged-twice", events=2),
        _told("an event where nothing wrapped", "unfounded", stray=1),
        _of_length("an epoch longer than the corpus", "long-pass", _too_long, complete=False),
        _of_length("an epoch broken off early", "short-pass", _too_short, complete=True),
        _unmeasured("the corpus is unknown", "unknown-corpus", corpus_tokens=None),
        _unmeasured("the tokens are unknown", "unknown-tokens", tokens=None),
        _unmeasured("the tokens of a step are unknown", "unknown-tokens", tokens_expected=None),
        _unmeasured("a step left out", "steps-left-out", largest_gap=2),
        _unmeasured("no loss", "no-losses", losses=0),
        _unmeasured("a step without a loss", "no-losses", steps_without_loss=1),
        _unmeasured("a step without a time", "no-wall-time", steps_without_time=1),
        _unmeasured("the recorder failed once", "recorder-failure", failures=1),
        in_record("a step more than was recorded", "steps-not-recorded", "progress", CorpusProgress,
                  lambda progress, _: replace(progress, announced_steps=progress.steps + 1), place="",
                  outcome=Outcome.BLOCKED),
        in_record("a step less than was recorded", "steps-not-recorded", "progress", CorpusProgress,
                  lambda progress, _: replace(progress, announced_steps=progress.steps - 1), place="",
                  outcome=Outcome.BLOCKED),
    ),
)  # fmt: skip
