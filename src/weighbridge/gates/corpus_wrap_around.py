"""corpus-wrap-around: was the corpus passed over on purpose, each wrap logged once, and was every step a real one?

An iterator that ran dry goes on with placeholders: losses that stand still, steps too quick to have trained. Tokens,
epochs and coverage are compared with each other, so that a wrap that nobody logged shows in at least one of them.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from weighbridge.clauses import kind
from weighbridge.clauses.clause import or_nan
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, Numbers, blocked, failed, passed, record_of, rows_of
from weighbridge.clauses.mutations import Breaks, Limit
from weighbridge.core import Doc, Fields, Offence, SubjectKind, Verdict, dataclass, field, plain, replace
from weighbridge.gates.families import column_basis
from weighbridge.quantities.runs import CorpusEpoch, CorpusProgress, Coverage, EqualLosses, QuickSteps

SAMPLED = "sampled"  # batches drawn at random: tokens are counted, and nothing is passed over in order
FINGERPRINTS = (1.0, math.e, 0.0)  # what stands in for a loss, its exponential, and nothing at all
FINGERPRINT_SHARE = 1e-6  # float32 keeps so much of e
MOVED = "batches differ in tokens, and corpus_position went on by"
EQUAL = "so many equal losses in a row that are 1, e or 0, or with equal gradient norms"
SHARE = "three steps in a row must not all take less than this share of all others"
FAILS = (
    *("placeholder", "constant-loss", "impossible-speed", "tokens-mismatch", "clamped-coverage"),
    *("unlogged", "logged-twice", "unfounded", "long-pass", "short-pass"),
)
BLOCKED = (
    *("no-passes", "unknown-corpus", "unknown-tokens", "steps-left-out", "no-losses", "no-wall-time"),
    *("recorder-failure", "steps-not-recorded"),
)
_breaks = Breaks(need="progress", row=CorpusProgress, blocked=BLOCKED, why="the contract does not bound the speed")


def _staying(loss: float, *, norm_too: bool = False) -> Callable[[CorpusProgress, Any, int], CorpusProgress]:
    """Return the change to one more run of equal losses, between two that are harmless."""
    shape: dict[str, Any] = {"first_step": 0, "last_step": 1, "length": 2, "loss": 2.5, "jump": 1e9, "changes": 1e9}
    harmless = EqualLosses(**shape, grad_norm=1.0, grad_norm_equal=False, last_row=False)

    def change(progress: CorpusProgress, _limits: Any, length: int) -> CorpusProgress:
        added = replace(harmless, length=length, loss=loss, grad_norm_equal=norm_too)
        return replace(progress, equal_losses=(*progress.equal_losses, harmless, added, harmless))

    return change


def _too_quick(progress: CorpusProgress, _limits: Any, share: float) -> CorpusProgress:
    below = math.nextafter(share * 100.0, 0.0)
    return replace(progress, quick=QuickSteps(first_step=7, last_step=9, length=3, below_ms=below, above_ms=100.0))


def _off(limit: Limit) -> Iterator[Mutation[Any]]:
    """Yield the tokens just beyond what may be missing or over."""
    for name, sign in (("more than steps account for", 1), ("fewer than steps account for", -1)):

        def apply(evidence: Evidence, limits: Any, places: tuple[str, ...], sign: int = sign) -> Mutated | str:
            slack = sign * limit.value * len(rows_of(evidence, "epochs", CorpusEpoch))

            def change(progress: CorpusProgress, _limits: Any) -> Fields | None:
                most = (progress.tokens_expected or 0) + slack * (progress.tokens_per_step or 0)
                tokens = math.nextafter(most, sign * math.inf)
                return {"tokens": tokens} if tokens > 0 else None

            moved = _breaks("", "", change, "no such number of tokens", place="tokens")
            return moved(evidence, limits, places)

        yield Mutation(name, "tokens-mismatch", apply)


STAND_INS = _breaks.beyond(
    ("a loss of 1", "placeholder", _staying(1.0)),
    ("a loss of e", "placeholder", _staying(math.e * (1 - 0.99 * FINGERPRINT_SHARE))),
    ("a loss of 0", "placeholder", _staying(0.0)),
    ("loss and gradient norm stand still", "placeholder", _staying(2.5, norm_too=True)),
    place="loss",
)
STILL = _breaks.beyond(("the loss stands still", "constant-loss", _staying(2.5)), place="loss")
QUICK = _breaks.beyond(("three steps too quick to have trained", "impossible-speed", _too_quick), place="speed")


@dataclass(slots=True)
class RunningCorpus:
    """An epoch that begins where the position falls, without a wrap event near it, or that has no end."""

    most: float  # tokens of an epoch, as long as each step has those that were declared
    each: float
    codes: tuple[str, ...] = ("unlogged", "long-pass")
    tokens: float = 0.0  # of the epoch
    position: float = -math.inf
    begun: list[float] = field(default_factory=list)  # steps at which an epoch began, and an event may yet come
    wraps: list[float] = field(default_factory=list)

    def row(self, step: float | None, numbers: Numbers, events: Sequence[Fields] = ()) -> Offence | None:
        """Return that an epoch began two steps ago, or before, of which no event speaks, or that one has no end."""
        self.wraps += [float(at) for one in events if one.get("event") == "wrap" and type(at := one.get("step")) is int]
        position = numbers.get("corpus_position")
        if step is None or position is None or math.isnan(position):
            return None
        drawn = numbers.get("tokens", self.each)
        self.tokens = self.tokens if position >= self.position and position != drawn else 0.0
        self.begun += [step] if position < self.position else []
        self.position, self.tokens = position, self.tokens + drawn
        self.most = self.most if drawn == self.each else math.inf
        if self.tokens > self.most:
            return Offence(place="epoch", code="long-pass", figures={"step": step})
        for began in [one for one in self.begun if step > one + 1]:
            event = next((wrap for wrap in self.wraps if abs(wrap - began) <= 1), None)
            if event is None:
                return Offence(place="epoch", code="unlogged", figures={"step": began})
            self.wraps.remove(event)
            self.begun.remove(began)
        return None


def tripwire(evidence: Evidence, _limits: object, _measure: object) -> RunningCorpus | None:
    """Begin to follow the epochs row by row, where the position in the corpus tells them."""
    by = {row.by for row in rows_of(evidence, "epochs", CorpusEpoch)}
    progress = record_of(evidence, "progress", CorpusProgress)
    if by != {"corpus_position"} or progress is None:
        return None
    corpus, step = progress.corpus_tokens, progress.tokens_per_step
    return RunningCorpus(most=corpus + step if corpus and step else math.inf, each=or_nan(step))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an epoch, a pass over the corpus, may look like."""

    placeholder_steps: Annotated[int, Doc(EQUAL, ge=2, le=16, must="below", moves=STAND_INS)] = 3
    max_equal_losses: Annotated[
        int, Doc("most equal losses in a row that rounding does not explain", ge=1, le=64, must="at most", moves=STILL)
    ] = 7
    min_step_share: Annotated[float | None, Doc(SHARE, ge=0.01, lt=1, tight="up", moves=QUICK)] = 0.2
    slack_steps: Annotated[
        float,
        Doc("steps' worth of tokens an epoch that may be missing or over", ge=0, le=1000, tight="down", moves=_off),
    ] = 1.0
    min_pass_share: Annotated[
        float, Doc("share of the corpus that a complete epoch must have seen, a step less", ge=0.5, le=1, tight="up")
    ] = 0.9


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Compare losses, speed, tokens, coverage and every epoch with each other and with the wraps that were logged."""
    progress, epochs = record_of(evidence, "progress", CorpusProgress), rows_of(evidence, "epochs", CorpusEpoch)
    unknown = _unknown(progress, epochs, limits)
    if progress is None:
        return blocked(unknown, dict.fromkeys(KNOWN))
    placeholders = list(_losses(progress, limits))
    if unknown and placeholders:  # what is broken beyond doubt is not hidden by what is not known
        return failed(placeholders, looked=["loss"], unit="wraps")
    if unknown:
        return blocked(unknown, {key: getattr(progress, key) for key in KNOWN})
    offences = [*placeholders, *_speed(progress, limits), *_tokens(progress, limits, len(epochs))]
    offences += [*_coverage(progress, epochs), *_epochs(epochs, progress, limits)]
    speed = [] if limits.min_step_share is None else ["speed"]
    looked = ["loss", *speed, "tokens", "coverage", *(row.epoch for row in epochs)]
    figures = {key: getattr(progress, key) for key in ("tokens", "tokens_from", "corpus_tokens", "steps")}
    passes = or_nan(progress.tokens) / or_nan(progress.corpus_tokens)
    figures |= {"by": epochs[0].by, **_wraps(epochs), "passes": passes}
    if offences:
        return failed(offences, looked=looked, unit="wraps", measured=len(epochs) - 1, figures=figures)
    return passed(looked=looked, unit="wraps", measured=len(epochs) - 1, figures=figures)


KNOWN = (
    *("corpus_tokens", "tokens", "tokens_per_step", "largest_gap", "losses", "steps", "steps_without_loss"),
    *("first_without_loss", "steps_without_time", "first_without_time", "failures", "announced_steps"),
)


def _unknown(progress: CorpusProgress | None, epochs: Sequence[CorpusEpoch], limits: Limits) -> str:
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
    expected = or_nan(progress.tokens_expected)
    slack = limits.slack_steps * epochs * or_nan(progress.tokens_per_step)
    if not expected - slack <= or_nan(progress.tokens) <= expected + slack:
        kept = ("tokens", "tokens_expected", "tokens_per_step", "steps", "tokens_from")
        figures = {key: getattr(progress, key) for key in kept}
        steps = progress.steps * or_nan(progress.tokens_per_step) == expected
        figures["by"] = f"{progress.steps} steps of {progress.tokens_per_step} tokens are" if steps else MOVED
        yield Offence(place="tokens", code="tokens-mismatch", figures={**figures, "slack": slack})


def _coverage(progress: CorpusProgress, epochs: Sequence[CorpusEpoch]) -> Iterator[Offence]:
    over = or_nan(progress.tokens) > or_nan(progress.corpus_tokens)
    for one in progress.coverage:
        passes = [row for row in epochs if one.column == row.by and row.first_step >= or_nan(one.since_step)]
        # A position stands still at the end of the corpus where each step is a whole pass.
        if over and one.full is not None and one.last == one.full and one.still > max(len(passes), 1):
            figures = {**plain(one), "tokens": progress.tokens, "corpus_tokens": progress.corpus_tokens}
            yield Offence(place="coverage", code="clamped-coverage", figures=figures)


def _epochs(epochs: Sequence[CorpusEpoch], progress: CorpusProgress, limits: Limits) -> Iterator[Offence]:
    corpus, step = or_nan(progress.corpus_tokens), or_nan(progress.tokens_per_step)
    # Where each step logs more tokens than it has, which `tokens-mismatch` says, an epoch is as long as its steps.
    off = bool([*_tokens(progress, limits, len(epochs))])
    share = min(or_nan(progress.tokens_expected) / or_nan(progress.tokens), 1.0) if off else 1.0
    for row in epochs:
        tokens = share * or_nan(row.tokens)
        broken = {
            "unlogged": row.number > 1 and not row.events,
            "logged-twice": row.events > 1,
            "unfounded": row.stray > 0,
            "long-pass": row.by != SAMPLED and not tokens <= corpus + step,
            "short-pass": row.complete and not tokens + step >= limits.min_pass_share * corpus,
        }
        figures = {**plain(row), **_wraps(epochs), "corpus_tokens": progress.corpus_tokens}
        if or_nan(progress.tokens) > or_nan(progress.tokens_expected):
            figures |= {"per_step": or_nan(progress.tokens) / progress.steps, "tokens_per_step": step}
        yield from (Offence(place=row.epoch, code=code, figures=figures) for code, is_so in broken.items() if is_so)


def _clamped(progress: CorpusProgress, _limits: Limits) -> CorpusProgress:
    tokens = max(progress.tokens or 0, 2)
    clamped = Coverage(column="coverage", full=1.0, last=1.0, max=1.0, still=2, since_step=0)
    honest = replace(clamped, last=0.5, max=0.5)
    corpus = max(math.ceil(tokens) - 1, 1)
    return replace(progress, tokens=tokens, corpus_tokens=corpus, coverage=(honest, clamped, honest))


def _silent_wrap(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, "epochs", CorpusEpoch)
    if rows[0].by == SAMPLED:
        return "batches drawn at random do not wrap"
    name = f"epoch {len(rows) + 1}"
    added = replace(rows[-1], epoch=name, number=len(rows) + 1, events=0, stray=0, complete=False)
    return Mutated(kind.with_rows(evidence, "epochs", (*rows, added)), frozenset({name}))


def _of_length(
    name: str, code: str, tokens: Callable[[CorpusProgress, Limits], float], *, complete: bool
) -> Mutation[Limits]:
    def damage(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
        progress = record_of(evidence, "progress", CorpusProgress)
        length = tokens(progress, limits) if progress else 0

        def change(row: CorpusEpoch, _limits: Limits) -> Fields | None:
            bounded = length > 1 and (complete or row.by != SAMPLED)
            return {"tokens": length, "complete": row.complete or complete} if bounded else None

        return _in_epochs(name, code, change, "a step is as long as an epoch")(evidence, limits, places)

    return Mutation(name, code, damage)


def _too_long(progress: CorpusProgress, _limits: Limits) -> float:
    return math.nextafter((progress.corpus_tokens or 0) + (progress.tokens_per_step or 0), math.inf)


def _too_short(progress: CorpusProgress, limits: Limits) -> float:
    least = limits.min_pass_share * (progress.corpus_tokens or 0)
    return math.nextafter(least, 0.0) - (progress.tokens_per_step or 0)


def _logged(events: int) -> Callable[[CorpusEpoch, Limits], Fields | None]:
    return lambda row, _: {"events": events} if row.number > 1 else None


_in_epochs = Breaks(need="epochs", row=CorpusEpoch, why="the run did not wrap")

KIND = kind.Kind(
    name="corpus-wrap-around", version=7, roles={"run": SubjectKind.RUN},
    needs={"progress": kind.Need("corpus_progress", of=("run",)), "epochs": kind.Need("corpus_epochs", of=("run",))},
    limits=Limits, codes=kind.codes(*FAILS, blocked=BLOCKED), judge=judge,
    final=("placeholder", "constant-loss", "logged-twice", "long-pass", "short-pass"), tripwire=tripwire,
    mutations=(
        _breaks("coverage clamped at full", "clamped-coverage", _clamped, place="coverage"),
        Mutation("a silent wrap more", "unlogged", _silent_wrap),
        _in_epochs("a wrap without an event", "unlogged", _logged(0)),
        _in_epochs("a wrap logged twice", "logged-twice", _logged(2)),
        _in_epochs("an event where nothing wrapped", "unfounded", stray=1),
        _of_length("an epoch longer than the corpus", "long-pass", _too_long, complete=False),
        _of_length("an epoch broken off early", "short-pass", _too_short, complete=True),
        _breaks("a step without a time", "no-wall-time",
                lambda _, limits: None if limits.min_step_share is None else {"steps_without_time": 1}, place=""),
        _breaks("the corpus is unknown", "unknown-corpus", place="", corpus_tokens=None),
        _breaks("the tokens are unknown", "unknown-tokens", place="", tokens=None),
        _breaks("the tokens of a step are unknown", "unknown-tokens", place="", tokens_expected=None),
        _breaks("a step left out", "steps-left-out", place="", largest_gap=2),
        _breaks("no loss", "no-losses", place="", losses=0),
        _breaks("a step without a loss", "no-losses", place="", steps_without_loss=1),
        _breaks("the recorder failed once", "recorder-failure", place="", failures=1),
        _breaks("a step more than was recorded", "steps-not-recorded",
                lambda progress, _: {"announced_steps": progress.steps + 1}, place=""),
        _breaks("a step less than was recorded", "steps-not-recorded",
                lambda progress, _: {"announced_steps": progress.steps - 1}, place=""),
    ),
)  # fmt: skip
