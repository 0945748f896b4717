"""Record a PyTorch training loop into a run directory, without changing one bit of it.

It draws no random number and moves no tensor. What fails inside it is an event and a warning, unless it is to raise.
"""

import functools
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import torch

from weighbridge.core.local_files import files_sha256
from weighbridge.recorder import columns, digests, residency, run_directory
from weighbridge.recorder.beside.memorized import Memorized, Probes
from weighbridge.recorder.beside.snapshots import Analysis, Snapshots
from weighbridge.recorder.channels import Cell, Watched
from weighbridge.recorder.columns import MisuseError, described, guarded, refuse_unknown
from weighbridge.recorder.hook_points import NANOSECOND, HookPoints
from weighbridge.recorder.learning.updates import Hyperparameters, Layers, unwrapped
from weighbridge.recorder.passes.diagnostics import LOOKING, Diagnostics, OneLook
from weighbridge.recorder.residency import DeviceAudit, KernelSample
from weighbridge.recorder.run_directory import DIAGNOSTICS, EVENTS, LAYERS, STEPS, RowLog, of_rank, rank_and_world
from weighbridge.recorder.watched_loader import CorpusPosition, WatchedLoader, shuffles, token_count


class Recorder:
    """Write `run.json`, `steps.jsonl` and `events.jsonl` while a loop trains.

    Use it as a context around the loop, draw batches from `rec.loader` (or `rec.cycle()`), and call `rec.step(loss)`
    once after each optimizer step. Every `probe_every` steps, the first included, the step is audited.

    With `requested_steps`, a loop that was left before is known to have ended early. With `sampled`, batches are drawn
    with replacement, and there are no passes over the corpus; a loader whose sampler draws so says it by itself. Of
    `files` (corpus, tokenizer, …) `run.json` keeps digests. One that resumes says by `first_step` where it goes on.
    With `kernels_every`, torch's profiler samples the last of every so many steps. With `diagnostics`, a fixed batch is
    evaluated now and then, and the inside of the model is looked at. With `analysis`, files of `ck.analysis.v1` are
    written beside the rows; `probes` are sealed, and gone on with now and then.
    """

    _attempt = 1
    _mark: tuple[float, float] | None = None
    _recorded = 0.0  # when the last row was made
    _wrote = 0.0  # seconds that writing the last row took, and a probe

    def __init__(
        self,
        directory: str | Path,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        loader: Iterable[Any] | None = None,
        requested_device: str = "auto",
        corpus_tokens: int | None = None,
        seq_len: int | None = None,
        batch_size: int | None = None,
        vocab: int | None = None,
        requested_steps: int | None = None,
        first_step: int = 0,
        seeds: Mapping[str, int] | None = None,
        tokens_of: Callable[[Any], int | None] | None = None,
        sampled: bool = False,
        probe_every: int = 1000,
        channels: str = "default",
        kernels_every: int = 0,
        diagnostics: Diagnostics | None = None,
        analysis: Analysis | None = None,
        probes: Probes | None = None,
        files: Mapping[str, str | Path] | None = None,
        on_fail: str = "warn",
    ) -> None:
        refuse_unknown(requested_device, on_fail, channels)
        self._root, self._vocab = Path(directory), vocab
        self._step = self._first_step = first_step
        self.directory = of_rank(self._root)
        self._model, self._optimizer = model, unwrapped(optimizer)
        self._seen = Watched(model, self._optimizer, vocab, shuffles=shuffles(loader))
        every, last = max(probe_every, 1), None if requested_steps is None else requested_steps - 1 - first_step
        self._audit, self._layers = DeviceAudit(self._seen, every), Layers(self._seen, every)
        looks = OneLook(self._seen, diagnostics.batch if diagnostics else None)
        self._inside = [one(self._seen, diagnostics, last, looks) for one in LOOKING] if diagnostics else []
        self._snapshots = None if analysis is None else Snapshots(self._seen, analysis, first_step, looks)
        self._memorized = None if probes is None else Memorized(self._seen, probes, first_step, self._event)
        self._resume, self._named, self._logs = digests.ResumeFiles(), dict[str, Any](), dict[str, RowLog]()
        own, beside = [one(self._seen) for one in columns.CHANNELS], filter(None, (self._memorized, self._snapshots))
        looking = [*own, self._audit, self._layers, *self._inside, *beside]
        self._points = HookPoints(self._seen, looking, 0 if channels == "all" else every, self._audit.ops, self.failed)
        self._requested = {"requested_device": requested_device, "requested_steps": requested_steps}
        self._sampled = sampled or bool(getattr(getattr(loader, "sampler", None), "replacement", False))
        self._sizes = {"seq_len": seq_len, "batch_size": batch_size, "corpus_tokens": corpus_tokens}
        self._declared_tokens = seq_len * batch_size if seq_len and batch_size else None
        self._seeds, self._files, self._digests = dict(seeds or {}), dict(files or {}), dict[str, str]()
        self._tokens_of = tokens_of or functools.partial(token_count, seq_len)
        self._on_fail, self._position, self._kernels = on_fail, CorpusPosition(), KernelSample(model, kernels_every)
        self._watched, self._warned = None if loader is None else WatchedLoader(loader, self), set[str]()

    @property
    def loader(self) -> WatchedLoader:
        """The loader to iterate over: the one given, watched."""
        if self._watched is None:
            raise ValueError("the recorder was given no loader; pass loader=… to have its wraps counted")
        return self._watched

    @property
    def _own(self) -> frozenset[str]:
        """The columns that it writes itself; of a script without an optimizer, the script alone knows the rate."""
        by_hand = Hyperparameters.columns if self._optimizer is None else ()
        return columns.OWN.union(Memorized.columns if self._memorized else ()).difference(by_hand)

    def cycle(self) -> Iterator[Any]:
        """Hand out the loader's batches for ever; each time it runs dry is logged as one wrap."""
        return self.loader.cycle()

    def __enter__(self) -> Self:
        self._claim()  # not before: torch.distributed may have begun since
        for name in self._files:
            self._digest(name)
        self._seal()
        self._open()
        self._watch()
        self._begin_step()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._close(kind)

    @guarded
    def step(
        self,
        /,
        loss: torch.Tensor | float,
        *,
        grad_norm: torch.Tensor | float | None = None,
        tokens: int | None = None,
        **scalars: torch.Tensor | float | None,
    ) -> None:
        """Record one finished optimizer step.

        Args:
            loss: the step's loss, in nats for a language model; a tensor costs the step's only device transfer.
            grad_norm: the norm before clipping, where no backward pass of the model can be seen.
            tokens: the tokens consumed, where no loader is watched.
            scalars: what else is to be logged, such as `val_loss`, by its name; None is a missing cell.
        """
        if scalars and (taken := self._own.intersection(scalars)):
            raise MisuseError(f"the recorder writes {', '.join(sorted(taken))} itself; give yours another name")
        try:
            self._record(loss, grad_norm, tokens, scalars)
        finally:  # a step that could not be recorded leaves a gap, not a shift
            self._next_step()

    @guarded
    def checkpoint(self, /, path: str | Path | None = None, **files: str | Path) -> None:
        """Log SHA-256 digests of the model's, the optimizer's and the random numbers' states, and of files by name.

        Args:
            path: the checkpoint that was written, a file or a folder.
            files: others that the run rests on, such as `tokenizer` or `corpus`.
        """
        with self._points.alone():
            states = digests.states(self._seen)
        given = files if path is None else {"checkpoint": path, **files}
        shas = {name: files_sha256(Path(file)) for name, file in given.items()}
        if self._memorized:
            self._memorized.due = True  # with the row of this step
        resumed = {} if path is None else self._resume.logged(Path(path), self.directory)
        self._event("checkpoint", **states, files=shas, **resumed)

    @guarded
    def _digest(self, name: str) -> None:
        self._digests[name] = files_sha256(Path(self._files[name]))

    @guarded
    def _seal(self) -> None:
        if self._memorized:
            self._digests["probes"] = self._memorized.sealed()

    def _record(self, loss: Cell, grad_norm: Cell, tokens: int | None, scalars: Mapping[str, Cell]) -> None:
        began, spent = time.perf_counter(), self._points.spent
        self._audit.ops.pause()
        if found := self._kernels.end():
            self._event("kernels", **found)
        skipped = self._points.sees_updates and not (self._seen.updated or self._seen.compiled)
        cells = {"loss": loss, **self._points.row(), **scalars}
        if grad_norm is not None and not skipped:
            cells["grad_norm"] = grad_norm
        asked = time.perf_counter()
        found = residency.on_host(cells)  # NaN of a channel: only the device knew that it cannot be known
        now = time.perf_counter(), time.process_time()
        on_device = isinstance(loss, torch.Tensor) and not loss.is_cpu
        waited = now[0] - asked if on_device else 0.0  # for the training that was handed to it
        row: dict[str, Any] = {"step": self._step}
        row |= {name: value for name, value in found.items() if name not in columns.AT_CADENCE or not math.isnan(value)}
        drawn = self._declared_tokens if self._watched is None else self._position.take_step()
        drawn = drawn if tokens is None else tokens
        if drawn is not None:
            row["tokens"] = drawn
        if self._mark is not None:
            row["wall_ms"] = round((now[0] - self._mark[0]) * 1e3, NANOSECOND)
            row["cpu_ms"] = round((now[1] - self._mark[1]) * 1e3, NANOSECOND)
            self._recorded = now[0]
            row["cost_ms"] = (spent + now[0] - began - waited + self._wrote) * 1e3
            if drawn is not None:
                row["tokens_per_sec"] = drawn / max(row["wall_ms"] / 1e3, 1e-9)
        if self._watched is not None and not self._sampled:
            row["wraps"] = self._position.wraps
            if self._position.position is not None:
                row["corpus_position"] = self._position.position
        if skipped:
            row["skipped"] = True
        self._append(STEPS, row)
        tensors, self._layers.rows = self._layers.rows, []
        for one in tensors:
            self._append(LAYERS, one)
        self._diagnosed()
        if self._snapshots:
            self._look_closer(self._snapshots, row, tensors)
        if self._audit.due():
            self._probe()

    def _diagnosed(self) -> None:
        for one in self._inside:
            while one.rows:
                self._append(DIAGNOSTICS, {"step": self._step, **one.rows.pop(0)})
            if one.unseen:
                self._event("diagnostics", found="not-audited", why=one.unseen)
                self._warn(f"diagnostics are not-audited: {one.unseen}")
                one.unseen = ""

    @guarded
    def _look_closer(self, snapshots: Snapshots, row: Mapping[str, Any], tensors: list[dict[str, Any]]) -> None:
        with self._points.alone():
            if self._logs and (event := snapshots.write(self.directory, self._named, row, tensors)):
                self._event("analysis", **event)

    def _next_step(self) -> None:
        self._step += 1
        self._points.spent = 0.0
        self._points.next_step(self._step - self._first_step)
        self._begin_step()

    def _begin_step(self) -> None:
        self._wrote = time.perf_counter() - self._recorded if self._recorded else 0.0
        if self._watched is None:
            self._audit.resume()
        self._kernels.begin(self._step)
        self._mark = time.perf_counter(), time.process_time()

    @guarded
    def fetching(self) -> None:
        """Keep the making of a batch, which happens on the host, out of the audited step."""
        self._audit.ops.pause()
        self._points.tell("fetch_begins")

    @guarded
    def batch_drawn(self, batch: object) -> None:
        """Count a batch's tokens, and audit the step that it is for where that step is probed."""
        self._points.tell("batch", batch)
        self._position.add(self._tokens_of(batch))
        self._audit.resume()

    @guarded
    def pass_began(self, *, dry: bool) -> None:
        """Log once that the corpus began again: a wrap after it ran dry, a restart after it was broken off."""
        self._seen.passes += 1
        ended = self._position.begin_pass(dry=dry)
        if not self._sampled:
            self._event("wrap" if dry else "restart", wraps=self._position.wraps, corpus_position=ended)

    @guarded
    def gave_nothing(self) -> None:
        """Log that the loader gave no batch when it was asked to begin."""
        self._event("exhausted", wraps=self._position.wraps, corpus_position=self._position.position)

    def _claim(self) -> None:
        try:
            run_directory.refuse_stopped(self._root)
            self.directory, self._attempt, self._logs[STEPS] = run_directory.claim(of_rank(self._root))
            for name in (EVENTS, LAYERS, *([DIAGNOSTICS] if self._inside else [])):
                self._logs[name] = RowLog(self.directory / name)
        except OSError as problem:
            self.failed("_claim", problem)

    @guarded
    def _open(self) -> None:
        rank, world = rank_and_world()
        parameters = sum(p.numel() for p in self._model.parameters())
        self._named = {"run": run_directory.run_of(of_rank(self._root)), "attempt": self._attempt}
        facts = {
            **self._named,
            **_known({**self._requested, "first_step": self._step or None}),
            "resolved_device": residency.resolved_device(self._model),
            "model": _known({"parameters": parameters, "vocab": self._vocab}),
            "data": _known({**self._sizes, "sampled": self._sampled or None}),
            **({"digests": self._digests} if self._digests else {}),
            "seeds": {"torch": torch.initial_seed(), **self._seeds},
            **({"rank": rank, "world_size": world} if world > 1 else {}),
            **run_directory.provenance(),
        }
        if STEPS in self._logs:
            run_directory.write_run(self.directory, facts)

    @guarded
    def _watch(self) -> None:
        self._points.open()

    @guarded
    def _close(self, kind: type[BaseException] | None) -> None:
        self._audit.ops.pause()
        self._kernels.end()
        self._points.close()
        if self._memorized and self._memorized.looked:
            self._memorized.look()  # once more at the file of probes
        self._event("end", steps=self._step, by=kind.__name__ if kind else "")
        while self._logs:
            (log := self._logs.pop(next(iter(self._logs)))).close()
            if log.lost:
                self._warn(f"{log.lost} rows could not be written")

    @guarded
    def _probe(self) -> None:
        self._event("device", **self._audit.fields())

    def _event(self, event: str, **fields: Any) -> None:
        self._append(EVENTS, {"event": event, "step": self._step, **fields})

    def _append(self, name: str, row: Mapping[str, Any]) -> None:
        if (log := self._logs.get(name)) is None:
            return
        log.append(row)
        if log.problem is not None:
            self._warn(f"the run directory cannot be written: {described(log.problem)}; rows wait")
        elif log.lost:
            lost, log.lost = log.lost, 0
            self._event("recorder-failure", what=f"{lost} rows could not be written", costs=columns.ALL)

    def failed(self, during: str, problem: Exception, costs: tuple[str, ...] | None = None) -> None:
        """Log what went wrong, or raise it where the user asked for that."""
        if self._on_fail == "raise":
            raise problem
        what = f"{during}: {described(problem)}"
        lost = columns.COSTS.get(during, columns.ALL) if costs is None else costs
        self._event("recorder-failure", what=what, costs=lost)
        self._warn(f"failed in {what}")

    def _warn(self, what: str) -> None:
        kind = what.partition(":")[0]  # once of each
        if kind in self._warned:
            return
        self._warned.add(kind)
        message = f"weighbridge recorder: {what}; training goes on"
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=4)
        except RuntimeWarning:  # where warnings are errors
            sys.stderr.write(f"{message}\n")


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}
