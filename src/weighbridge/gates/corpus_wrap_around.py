"""corpus-wrap-around: was the corpus passed over on purpose, each wrap told once, and was every step a real one?

An iterator that ran dry goes on with placeholders: losses that stand still, steps too quick to have trained. Tokens,
epochs and coverage are held against each other, so that a wrap that nobody told shows in at least one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from weighbridge.clauses.kind import (
    Damage,
    Evidence,
    Falsifier,
    Kind,
    Need,
    NotApplicable,
    blocked,
    each_record,
    each_row,
    failed,
    passed,
    record_of,
    rows_of,
    with_value,
)
from weighbridge.limits import Doc
from weighbridge.model import Fields, Json, Offence, Outcome, Rows, SubjectKind, Verdict

FINGERPRINTS = (1.0, math.e, 0.0)  # what stands in for a loss, its exponential, and nothing at all
FINGERPRINT_SHARE = 1e-6  # float32 keeps so much of e


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an epoch, a pass over the corpus, may look like."""

    placeholder_steps: Annotated[
        int, Doc("so many equal losses in a row that are 1, e or 0, or with equal gradient norms", ge=2, tight="down")
    ] = 3
    max_equal_losses: Annotated[int, Doc("most bit-equal losses in a row, of any value", ge=1, tight="down")] = 7
    min_step_share: Annotated[
        float | None,
        Doc("three steps in a row must not all take less than this share of the median", gt=0, lt=1, tight="up"),
    ] = 0.2
    slack_steps: Annotated[
        float, Doc("steps' worth of tokens an epoch that may be missing or over", ge=0, le=1000, tight="down")
    ] = 1.0
    min_pass_share: Annotated[
        float, Doc("share of the corpus that a complete epoch must have seen, a step less", gt=0, le=1, tight="up")
    ] = 0.9


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold losses, speed, tokens, coverage and every epoch against each other and against the wraps that were told."""
    progress, epochs = record_of(evidence, "progress"), rows_of(evidence, "epochs")
    code = _unknown(progress, epochs, limits)
    placeholders = list(_losses(progress, limits)) if progress.get("equal_losses") else []
    if code and placeholders:  # what is broken beyond doubt is not hidden by what is not known
        return failed(placeholders, looked=["loss"], unit="wraps")
    if code:
        told = ("corpus_tokens", "tokens", "tokens_per_step", "largest_gap", "losses", "wall_ms_median")
        return blocked(code, {key: progress.get(key) for key in told})
    offences = [
        *placeholders,
        *_speed(progress, limits),
        *_tokens(progress, limits, len(epochs)),
        *_coverage(progress),
        *_epochs(epochs, progress, limits),
    ]
    speed = ["speed"] if limits.min_step_share is not None else []
    looked = ["loss", *speed, "tokens", "coverage", *(str(row["epoch"]) for row in epochs)]
    wraps = len(epochs) - 1
    figures = _figures(progress, epochs)
    if offences:
        return failed(offences, looked=looked, unit="wraps", measured=wraps, figures=figures)
    return passed(looked=looked, unit="wraps", measured=wraps, figures=figures)


def _unknown(progress: Fields, epochs: tuple[Fields, ...], limits: Limits) -> str:
    """Say why it cannot be judged, or nothing."""
    if not epochs:
        return "no-passes"
    if not progress.get("corpus_tokens"):
        return "unknown-corpus"
    if progress.get("tokens") is None or progress.get("tokens_expected") is None:
        return "unknown-tokens"
    if _number(progress["largest_gap"]) > 1:
        return "steps-left-out"
    if not progress.get("losses"):
        return "no-losses"
    if limits.min_step_share is not None and progress.get("wall_ms_median") is None:
        return "no-wall-time"
    return ""


def _losses(progress: Fields, limits: Limits) -> Iterator[Offence]:
    for run in _list(progress, "equal_losses"):
        length = _number(run["length"])
        if length >= limits.placeholder_steps and (_fingerprint(run["loss"]) or run["grad_norm_equal"] is True):
            yield Offence(place="loss", code="placeholder", figures=run)
        elif length > limits.max_equal_losses:
            yield Offence(place="loss", code="constant-loss", figures=run)


def _fingerprint(loss: Json) -> bool:
    value = _number(loss)
    return any(abs(value - known) <= FINGERPRINT_SHARE * known for known in FINGERPRINTS)


def _speed(progress: Fields, limits: Limits) -> Iterator[Offence]:
    if limits.min_step_share is None:
        return
    quickest, median = _number(progress["quickest_ms"]), _number(progress["wall_ms_median"])
    if not quickest >= limits.min_step_share * median:
        figures: Fields = {"quickest_ms": quickest, "median_ms": median, "first_step": progress["quickest_step"]}
        yield Offence(place="speed", code="impossible-speed", figures={**figures, "share": limits.min_step_share})


def _tokens(progress: Fields, limits: Limits, epochs: int) -> Iterator[Offence]:
    tokens, expected = _number(progress["tokens"]), _number(progress["tokens_expected"])
    slack = _slack(progress, limits, epochs)
    if not expected - slack <= tokens <= expected + slack:
        kept = ("tokens", "tokens_expected", "tokens_per_step", "steps", "tokens_from")
        yield Offence(
            place="tokens", code="tokens-mismatch", figures={**{key: progress[key] for key in kept}, "slack": slack}
        )


def _slack(progress: Fields, limits: Limits, epochs: int) -> float:
    return limits.slack_steps * epochs * _number(progress["tokens_per_step"])


def _coverage(progress: Fields) -> Iterator[Offence]:
    over = _number(progress["tokens"]) > _number(progress["corpus_tokens"])
    for told in _list(progress, "coverage"):
        at_full = told["full"] is not None and told["last"] == told["full"]
        if over and at_full and _number(told["still"]) > 1:
            figures = {**told, "tokens": progress["tokens"], "corpus_tokens": progress["corpus_tokens"]}
            yield Offence(place="coverage", code="clamped-coverage", figures=figures)


def _epochs(epochs: tuple[Fields, ...], progress: Fields, limits: Limits) -> Iterator[Offence]:
    shared = {key: value for key, value in _figures(epochs=epochs, progress=progress).items() if key in _SHARED}
    for row in epochs:
        for code in _epoch(row, progress, limits):
            yield Offence(place=str(row["epoch"]), code=code, figures={**row, **shared})


_SHARED = ("wraps", "logged", "corpus_tokens")


def _epoch(row: Fields, progress: Fields, limits: Limits) -> Iterator[str]:
    corpus, step = _number(progress["corpus_tokens"]), _number(progress["tokens_per_step"])
    wrapped, events = _number(row["number"]) > 1, _number(row["events"])
    if wrapped and not events:
        yield "unlogged"
    if events > 1:
        yield "logged-twice"
    if row["stray"]:
        yield "unfounded"
    if not _number(row["tokens"]) <= corpus + step:
        yield "long-pass"
    if row["complete"] and not _number(row["tokens"]) + step >= limits.min_pass_share * corpus:
        yield "short-pass"


def _figures(progress: Fields, epochs: tuple[Fields, ...]) -> Fields:
    logged = sum(int(_number(row["events"]) + _number(row["stray"])) for row in epochs)
    tokens, corpus = _number(progress["tokens"]), _number(progress["corpus_tokens"])
    kept = {key: progress[key] for key in ("tokens", "tokens_from", "corpus_tokens", "steps", "tokens_per_step")}
    return {"wraps": len(epochs) - 1, "logged": logged, "passes": tokens / corpus, "by": epochs[0]["by"], **kept}


def _list(record: Fields, key: str) -> list[Fields]:
    items = record[key]
    assert isinstance(items, (list, tuple))
    return [item for item in items if isinstance(item, Mapping)]


def _number(value: Json) -> float:
    """Take a number; what is none (an unknown count of tokens) is NaN, which no bound accepts."""
    return value if isinstance(value, (int, float)) else math.nan


# --- Falsifiers -------------------------------------------------------------------------------------------------------


def _equal_run(name: str, code: str, change: Callable[[Limits], Fields]) -> Falsifier[Limits]:
    harmless: Fields = {"length": 2, "loss": 2.5, "grad_norm": 1.0, "grad_norm_equal": False}
    where: Fields = {"first_step": 0, "last_step": 1, "last_row": False}

    def damaged(progress: Fields, limits: Limits) -> Fields:
        run = {**where, **harmless, **change(limits)}
        return {
            **progress,
            "equal_losses": [*_list(progress, "equal_losses"), {**where, **harmless}, run, {**where, **harmless}],
        }

    return each_record(name, code, "progress", damaged, place="loss")


def _quick(progress: Fields, limits: Limits) -> Fields | None:
    if limits.min_step_share is None:
        return None
    share = limits.min_step_share * _number(progress["wall_ms_median"])
    return {**progress, "quickest_ms": math.nextafter(share, 0.0)}


def _clamped(progress: Fields, _limits: Limits) -> Fields:
    corpus = max(math.ceil(_number(progress["tokens"])) - 1, 1)
    clamped: Fields = {"column": "coverage", "full": 1.0, "last": 1.0, "max": 1.0, "still": 2, "since_step": 0}
    honest: Fields = {**clamped, "last": 0.5, "max": 0.5}
    tokens = max(_number(progress["tokens"]), 2)
    return {**progress, "tokens": tokens, "corpus_tokens": corpus, "coverage": [honest, clamped, honest]}


def _off(sign: float) -> Falsifier[Limits]:
    """Move the tokens just beyond their slack; the epochs, which widen it, are taken from the evidence."""

    def damage(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
        epochs = len(rows_of(evidence, "epochs"))

        def change(progress: Fields, _limits: Limits) -> Fields | None:
            slack = limits.slack_steps * epochs * _number(progress["tokens_per_step"])
            beyond = _number(progress["tokens_expected"]) + sign * slack
            moved = math.nextafter(beyond, sign * math.inf)
            return {**progress, "tokens": moved} if moved > 0 else None

        inner = each_record(name, "tokens-mismatch", "progress", change, place="tokens", why="a run within the slack")
        return inner.damage(evidence, limits, places)

    name = "more tokens than steps account for" if sign > 0 else "fewer tokens than steps account for"
    return Falsifier(name, "tokens-mismatch", damage)


def _each_epoch(
    name: str, code: str, change: Callable[[Fields, Fields, Limits], Fields | None], why: str = "no such epoch"
) -> Falsifier[Limits]:
    def damage(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
        progress = record_of(evidence, "progress")
        inner: Falsifier[Limits] = each_row(
            name, code, "epochs", lambda row, within: change(row, progress, within), why=why
        )
        return inner.damage(evidence, limits, places)

    return Falsifier(name, code, damage)


def _silent_wrap(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Damage | NotApplicable:
    """Add one epoch more that no event announces."""
    rows = rows_of(evidence, "epochs")
    number = len(rows) + 1
    name = f"epoch {number}"
    added = {**rows[-1], "epoch": name, "number": number, "events": 0, "stray": 0, "complete": False}
    return Damage(with_value(evidence, "epochs", Rows("epoch", (*rows, added))), frozenset({name}))


def _too_long(row: Fields, progress: Fields, _limits: Limits) -> Fields:
    most = _number(progress["corpus_tokens"]) + _number(progress["tokens_per_step"])
    return {**row, "tokens": math.nextafter(most, math.inf)}


def _too_short(row: Fields, progress: Fields, limits: Limits) -> Fields | None:
    least = limits.min_pass_share * _number(progress["corpus_tokens"])
    tokens = math.nextafter(least, 0.0) - _number(progress["tokens_per_step"])
    return {**row, "complete": True, "tokens": tokens} if tokens > 1 else None


def _blocking(name: str, code: str, **changed: Json) -> Falsifier[Limits]:
    return each_record(
        name, code, "progress", lambda progress, _: {**progress, **changed}, place="", outcome=Outcome.BLOCKED
    )


KIND = Kind(
    name="corpus-wrap-around",
    version=1,
    roles={"run": SubjectKind.RUN},
    needs={
        "progress": Need("corpus_progress", of=("run",)),
        "epochs": Need("corpus_epochs", of=("run",)),
    },
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
        "no-wall-time": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=(
        _equal_run(
            "a dry iterator's loss of 1",
            "placeholder",
            lambda limits: {"length": limits.placeholder_steps, "loss": 1.0},
        ),
        _equal_run(
            "a dry iterator's loss of e",
            "placeholder",
            lambda limits: {"length": limits.placeholder_steps, "loss": math.e * (1 - 0.99 * FINGERPRINT_SHARE)},
        ),
        _equal_run(
            "a dry iterator's loss of 0",
            "placeholder",
            lambda limits: {"length": limits.placeholder_steps, "loss": 0.0},
        ),
        _equal_run(
            "loss and gradient norm stand still",
            "placeholder",
            lambda limits: {"length": limits.placeholder_steps, "grad_norm_equal": True},
        ),
        _equal_run(
            "the loss stands still for long", "constant-loss", lambda limits: {"length": limits.max_equal_losses + 1}
        ),
        each_record(
            "three steps too quick to have trained",
            "impossible-speed",
            "progress",
            _quick,
            place="speed",
            why="the contract does not bound the speed",
        ),
        _off(1.0),
        _off(-1.0),
        each_record("coverage clamped at full", "clamped-coverage", "progress", _clamped, place="coverage"),
        Falsifier("a silent wrap more", "unlogged", _silent_wrap),
        _each_epoch(
            "a wrap that no event tells",
            "unlogged",
            lambda row, _, __: {**row, "events": 0} if _number(row["number"]) > 1 else None,
            "the run did not wrap",
        ),
        _each_epoch(
            "a wrap told twice",
            "logged-twice",
            lambda row, _, __: {**row, "events": 2} if _number(row["number"]) > 1 else None,
            "the run did not wrap",
        ),
        _each_epoch("an event where nothing wrapped", "unfounded", lambda row, _, __: {**row, "stray": 1}),
        _each_epoch("an epoch longer than the corpus", "long-pass", _too_long),
        _each_epoch("an epoch broken off early", "short-pass", _too_short, "a step is as long as an epoch"),
        _blocking("the corpus is unknown", "unknown-corpus", corpus_tokens=None),
        _blocking("the tokens are unknown", "unknown-tokens", tokens=None),
        _blocking("the tokens of a step are unknown", "unknown-tokens", tokens_expected=None),
        _blocking("a step left out", "steps-left-out", largest_gap=2),
        _blocking("no loss", "no-losses", losses=0),
        each_record(
            "no wall time",
            "no-wall-time",
            "progress",
            lambda progress, limits: (
                {**progress, "wall_ms_median": None} if limits.min_step_share is not None else None
            ),
            place="",
            why="the contract does not bound the speed",
            outcome=Outcome.BLOCKED,
        ),
    ),
)
