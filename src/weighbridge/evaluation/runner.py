"""Measure what the gates need with its canaries, and judge what the sealed form of that decodes to."""

import contextlib
import datetime as dt
import itertools
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weighbridge.core import PluginError, SubjectError, WeighbridgeError, dumps, loads, model, plugins, show_traceback
from weighbridge.core.errors import FAULTS
from weighbridge.core.frozen import dataclass, field, replace
from weighbridge.evaluation.binding import Binding, find, found, origin, refuse
from weighbridge.evidence.codec import decode_measured, encode_measured
from weighbridge.evidence.statement import SubjectFiles
from weighbridge.judging.judging import judge_contract
from weighbridge.judging.requests import NOT_HERE, Request, all_requests, host_request, lacking_here
from weighbridge.run_logs.log_file import NO_STEP
from weighbridge.scheduling import threads
from weighbridge.scheduling.threads import HERE, Execution
from weighbridge.storage.readable import sha256
from weighbridge.verifiers import VERIFIERS
from weighbridge.verifiers.verifier import Found, MeasurementJob, NoCanary, Verifier, Views
from weighbridge.views.checkpoint import CheckpointView, names_beside

if TYPE_CHECKING:
    from weighbridge.evidence.redact import Redactor

Announce = Callable[[str], None]
COURSE = "step_course"
DOUBTED = (model.Origin.REPORTED, model.Origin.FIXTURE)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was measured in one session, as its sealed bytes decode, and what it came to."""

    contract: model.Contract
    bound: tuple[Binding, ...]
    instances: Mapping[str, tuple[str, ...]]
    measured: Mapping[str, model.Measured]
    canaries: Mapping[str, model.CanaryResult]
    origins: Mapping[tuple[str, str], model.Origin]
    books: Mapping[tuple[str, str], str]  # digests of those that stand; "" where none does and one is needed
    unwitnessed: Mapping[tuple[str, str], str]  # of what is DOUBTED, why; "" of logs of others
    files: Mapping[tuple[str, str], SubjectFiles]
    sizes: Mapping[tuple[str, str], int]
    starts: Mapping[tuple[str, str], str]
    programs: Mapping[tuple[str, str], tuple[str, bool | None]]
    seconds: Mapping[tuple[str, str], float]
    plugins: tuple[plugins.Plugin, ...]
    findings: tuple[model.Finding, ...]
    started: dt.datetime
    finished: dt.datetime


@dataclass(slots=True, kw_only=True)
class EvaluationSession:
    """One evaluation under way: opens each subject once, measures each quantity once."""

    contract: model.Contract
    bound: Sequence[Binding]
    on: Mapping[str, tuple[str, ...]]  # the instances of each gate
    views: dict[tuple[str, str], Any] = field(default_factory=dict)  # those that are open already
    execution: Execution = HERE
    progress: Announce = lambda _text: None
    with_itself: bool = False  # whether a file may be compared with itself
    started: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    broken: dict[tuple[str, str], SubjectError] = field(default_factory=dict)
    measured: dict[str, model.Measured] = field(default_factory=dict)
    canaries: dict[str, model.CanaryResult] = field(default_factory=dict)
    prefetched: dict[str, Found] = field(default_factory=dict)
    prefetching: dict[str, float] = field(default_factory=dict)
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def evaluate(self, redactor: "Redactor | None" = None) -> Evaluation:
        """Measure what the gates need, and judge it as sealed; without a redactor, nothing is to be kept."""
        for gate, instance in self.gates() if not self.with_itself else ():
            mine = found(gate.subjects.values(), self.bound, instance)
            checkpoints = [one for one in mine if one.kind is model.SubjectKind.CHECKPOINT]
            for one, other in itertools.combinations(checkpoints, 2):
                if self.is_one(one, other):
                    refuse(gate, one, other)
        self.prefetch(item for gate, on in self.gates() if not gate.requires for item in all_requests(gate, on))
        for gate, instance in self.gates():
            self.measure_gate(gate, instance)
        for subject, instance in sorted(self.views) if redactor else ():  # for pictures: no gate reads it
            if any(item.key == (subject, instance) and item.kind is model.SubjectKind.RUN for item in self.bound):
                self.measure(Request(quantity=COURSE, subjects=(subject,), instance=instance, options="{}"))
        return self.judged(redactor)

    def gates(self) -> Iterator[tuple[model.GateDecl, str]]:
        """Yield every gate with each of its instances."""
        return ((gate, instance) for gate in self.contract.gates for instance in self.on[gate.id])

    def judged(self, redactor: "Redactor | None") -> Evaluation:
        """Judge what the sealed bytes decode to, so that a live verdict and a re-judged one cannot differ."""
        views, canaries = self.views, self.canaries
        files: dict[tuple[str, str], SubjectFiles] = {}
        if redactor:
            from weighbridge.evidence.redact import redact_canary

            nbytes = {key: getattr(view, "nbytes", 0) for key, view in views.items()}
            files = dict(zip(nbytes, threads.map_in_order(lambda key: files_of(views[key]), nbytes), strict=True))
            canaries = {key: redact_canary(one, redactor) for key, one in canaries.items()}
        measured = {key: as_sealed(item, redactor) for key, item in self.measured.items()}
        self.progress("judging")
        origins = {item.key: origin(item, views[item.key]) for item in self.bound if item.key in views}
        return Evaluation(
            contract=self.contract,
            bound=tuple(self.bound),
            instances=self.on,
            measured=measured,
            canaries=canaries,
            origins=origins,
            files=files,
            seconds=self.seconds,
            started=self.started,
            books={key: one for key, view in views.items() if (one := getattr(view, "book", None)) is not None},
            unwitnessed={key: getattr(one, "unwitnessed", "") for key, one in views.items() if one.origin in DOUBTED},
            starts={key: began for key, view in views.items() if (began := getattr(view, "started", ""))},
            programs={key: view.program for key, view in views.items() if hasattr(view, "program")},
            sizes={key: view.size for key, view in views.items() if isinstance(view, CheckpointView)},
            plugins=tuple(self._plugins()) if redactor else (),
            findings=judge_contract(self.contract, self.on, measured, canaries),
            finished=dt.datetime.now(dt.UTC),
        )

    def _plugins(self) -> Iterator[plugins.Plugin]:
        """Yield what other packages brought to this evaluation: kinds, quantities with their verifiers, and readers."""
        yield from plugins.used("kind", [gate.kind for gate in self.contract.gates if self.on[gate.id]])
        measured = [item.quantity for gate, one in self.gates() for item in all_requests(gate, one)]
        yield from plugins.used("quantity", measured)
        yield from plugins.used("verifier", measured)
        forms = [view.format.removesuffix("-sharded") for view in self.views.values() if hasattr(view, "format")]
        yield from plugins.used("reader of checkpoints", [part for form in forms for part in form.split("+")])
        runs = [one.target for one in self.bound if one.kind is model.SubjectKind.RUN]
        yield from plugins.used("reader of run logs", [target.rpartition(".")[2] for target in runs])

    def view(self, bound: Binding) -> Any:
        """Open a subject once; an unreadable one stays so."""
        if bound.key in self.broken:
            raise self.broken[bound.key]
        if bound.key not in self.views:
            try:
                self.views[bound.key] = bound.open()
            except SubjectError as error:
                self.broken[bound.key] = error
                raise
        return self.views[bound.key]

    def is_one(self, one: Binding, other: Binding) -> bool:
        """Return whether the tensors of one checkpoint lie in files of another; an unreadable one is reported later."""
        try:
            here, there = self.view(one), self.view(other)
        except SubjectError:
            return False
        return bool(here.lies_in(there) or there.lies_in(here))

    def measure_gate(self, gate: model.GateDecl, instance: str) -> None:
        """Measure what one gate needs where the host has what it requires; what several need counts for the first."""
        began = time.monotonic()
        if (host := host_request(gate)) is not None:
            self.measure(host)
        lacking = lacking_here(gate, self.measured)
        for item in all_requests(gate, instance):
            if lacking is None:
                self.measure(item)
            elif item.key not in self.measured:
                why, remedy = f"this host lacks {lacking[0]}", "run it on a host that has it"
                self.measured[item.key] = self._unbound(item) or model.Unmeasured(code=NOT_HERE, why=why, remedy=remedy)
        before = sum(self.prefetching.pop(item.key, 0.0) for item in all_requests(gate, instance))
        self.seconds[gate.id, instance] = before + time.monotonic() - began

    def measure(self, item: Request) -> None:
        """Measure one quantity once, and lay its canary."""
        if item.key not in self.measured:
            if (unbound := self._unbound(item)) is None:
                self.progress(f"measuring {item.quantity} of {', '.join(item.subjects) or 'this host'}")
            self.measured[item.key] = unbound or self._guarded(item)

    def _unbound(self, item: Request) -> model.Unmeasured | None:
        name = next((name for name in item.subjects if find(self.bound, name, item.instance) is None), None)
        if name is None:
            return None
        remedy = f"bind it: --subject {name}=… (under pytest --gate-subject {name}=…)"
        glob = self.contract.subjects[name].for_each
        why = f", for {glob!r} finds no file from the contract's folder on" if glob else ""
        return model.Unmeasured(code="unbound", why=f"the subject {name!r} is not bound{why}", remedy=remedy)

    def prefetch(self, items: Iterable[Request]) -> None:
        """Make at once what reads the same: quantities of one subject, or of several that differ in the last alone."""
        alike: dict[Any, dict[str, tuple[Verifier, tuple[Binding, ...]]]] = {}
        for item in items:
            bound = found(item.subjects, self.bound, item.instance)
            verifier = VERIFIERS.get((item.quantity, tuple(one.looked_at_as for one in bound)))
            if verifier is not None and verifier.batch is not None and len(bound) == len(item.subjects):
                shared = verifier.batch, bound[: max(len(bound) - 1, 1)], item.options
                alike.setdefault(shared, {})[item.key] = verifier, bound
        for (batch, shared, options), group in alike.items():
            if len(group) < 2:
                continue
            self.progress(f"measuring {len(group)} times of {', '.join(one.subject for one in shared)}")
            jobs, given, began = {}, loads(options), time.monotonic()
            for key, (verifier, bound) in group.items():
                with contextlib.suppress(SubjectError):  # reported when its own turn comes
                    jobs[key] = MeasurementJob(verifier, tuple(map(self.view, bound)))
            with contextlib.suppress(*FAULTS), contextlib.redirect_stdout(sys.stderr):  # then each is measured alone
                self.prefetched |= dict(zip(jobs, batch(list(jobs.values()), given, self.execution), strict=True))
            self.prefetching |= dict.fromkeys(group, (time.monotonic() - began) / len(group))

    def _guarded(self, item: Request) -> model.Measured:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # a subject's own code may print; the answer stays readable
                return self._measured(item, found(item.subjects, self.bound, item.instance))
        except SubjectError as error:
            show_traceback(error.__cause__)
            why = f"{error.where}: {error.what}".removeprefix(": ")
            runs = all(one.kind is model.SubjectKind.RUN for one in found(item.subjects, self.bound, item.instance))
            made = model.Unmeasured if runs and error.code in NO_STEP else model.Faulted  # missing data is no fault
            return made(code=error.code, why=why, remedy=error.remedy)
        except (KeyboardInterrupt, PluginError):
            raise
        except BaseException as error:  # noqa: BLE001 -- whatever a verifier raises is a finding; its text is never sealed
            show_traceback(error)
            why = f"the verifier of {item.quantity} raised {type(error).__name__}"
            remedy = "this is a fault of the tool: run again with --debug"
            return model.Faulted(code="verifier-raised", why=why, remedy=remedy)

    def _measured(self, item: Request, bound: tuple[Binding, ...]) -> model.Measured:
        kinds: tuple[model.SubjectKind, ...] = tuple(one.looked_at_as for one in bound)
        if (verifier := VERIFIERS.get((item.quantity, kinds))) is None:
            why = f"no verifier measures {item.quantity} of {kinds}"
            return model.Faulted(code="no-verifier", why=why, remedy="bind another kind")
        views = tuple(self.view(one) for one in bound)
        options: model.Fields = loads(item.options)
        result = self.prefetched.pop(item.key, None) or _measured(verifier, views, options, self.execution)
        if isinstance(result, SubjectError):
            raise result
        if isinstance(result, model.Unmeasured):
            return result
        self.canaries[item.key] = lay_canary(verifier, views, options, result, self.execution)
        return replace(result, total=verifier.extent(views, options))


def _measured(verifier: Verifier, views: Views, options: model.Fields, execution: Execution) -> Found:
    if verifier.batch is None:
        return verifier.measure(views, options)
    (result,) = verifier.batch([MeasurementJob(verifier, views)], options, execution)
    return result


def lay_canary(
    verifier: Verifier, views: Views, options: model.Fields, measured: model.Measurement, execution: Execution = HERE
) -> model.CanaryResult:
    """Measure again with a known damage; an instrument whose answer cannot be compared with it did not see it."""
    canary = verifier.canary(views, options, measured)
    if isinstance(canary, NoCanary):
        return model.CanaryResult(name="", place="", applied=False, seen=False, why=canary.why)
    again = _measured(verifier, canary.views, options, execution)
    if isinstance(again, SubjectError):
        raise again
    try:
        seen = canary.seen(again)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError):
        seen = False
    return model.CanaryResult(name=canary.name, place=canary.place, applied=True, seen=seen)


def files_of(view: Any, known: Mapping[str, str] | None = None, was: Collection[str] = ()) -> SubjectFiles:
    """Return the files of a subject; beside a checkpoint, those that were read have a digest, here or by what `was`."""
    beside: tuple[str, ...] = ()
    with contextlib.suppress(SubjectError):  # a folder that cannot be listed: then nothing in it is known
        beside = names_beside(view) if isinstance(view, CheckpointView) else ()
    digests = view.digest() if known is None else known
    more = {name: sha256(view.folder.open(name)) for name in beside if name in was and name not in digests}
    return SubjectFiles({**digests, **more}, beside)


def as_sealed(item: model.Measured, redactor: "Redactor | None") -> model.Measured:
    """Return what the sealed bytes decode to; what a hostile subject makes unfit for a bundle was not measured."""
    try:
        body, arrays = encode_measured(item)
        if redactor:
            from weighbridge.evidence.redact import redact_json

            body = redact_json(body, redactor)
        return decode_measured(loads(dumps(body)), arrays)
    except (WeighbridgeError, RecursionError) as error:
        what = error.what if isinstance(error, WeighbridgeError) else "it is nested too deep"
        why = f"what was measured cannot be sealed: {what}"
        remedy = "look for odd names and numbers in the subject"
        return model.Faulted(code="not-sealable", why=redactor.text(why) if redactor else why, remedy=remedy)
