"""Record a PyTorch training loop into a run directory, without changing one bit of it.

It draws no random number and moves no tensor. What fails inside it is an event and a warning, unless it is to raise.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self

import torch

from weighbridge.recorder import failure, residency
from weighbridge.recorder.optimizer import Updates, unwrapped
from weighbridge.recorder.provenance import of_rank, provenance, rank_and_world
from weighbridge.recorder.run_directory import EVENTS, RUN, STEPS, RowLog, write_run
from weighbridge.recorder.scalars import on_host
from weighbridge.recorder.watched_loader import CorpusPosition, WatchedLoader, draws_with_replacement, token_counter
from weighbridge.recorder.witnesses import testimony

P = ParamSpec("P")
EARLY_PROBES = (10, 100)  # so that a short run, too, is probed after its first step


def _guarded(method: Callable[Concatenate[Recorder, P], None]) -> Callable[Concatenate[Recorder, P], None]:
    """Keep what goes wrong in the recorder out of training, but for a call that could never have worked, at once."""

    @functools.wraps(method)
    def call(self: Recorder, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as problem:
            misused = isinstance(problem, TypeError) and not _fits(method, self, *args, **kwargs)
            if self._on_fail == "raise" or (misused and self._step == 0):
                raise
            self._failed(method.__name__, problem)
            if misused:
                self._next_step()

    return call


def _fits(method: Callable[..., None], *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(method).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


class Recorder:
    """Write `run.json`, `steps.jsonl` and `events.jsonl` while a loop trains.

    Use it as a context around the loop, draw batches from `rec.loader` (or `rec.cycle()`), and call `rec.step(loss)`
    once after each optimizer step. Every `probe_every` steps, the first included, the step is audited: where the
    tensors are, where the ops put their results, what the driver and the kernel say of this process.

    With `requested_steps` (a trainer's `max_steps`), a loop that was left before is known to have ended early. With
    `sampled`, batches are drawn with replacement, and there are no passes over the corpus, only tokens; a loader whose
    sampler draws so says it by itself. Raises FileExistsError where the directory has a run already.
    """

    _steps: RowLog | None = None
    _events: RowLog | None = None
    _updates: Updates | None = None
    _audited = False
    _unaudited = ""
    _frames = 0
    _norm: torch.Tensor | None = None
    _lr: float | None = None
    _updated_once = False
    _step = 0
    _mark: tuple[float, float] | None = None

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
        seeds: Mapping[str, int] | None = None,
        tokens_of: Callable[[Any], int | None] | None = None,
        sampled: bool = False,
        probe_every: int = 1000,
        on_fail: str = "warn",
    ) -> None:
        if not re.fullmatch(r"cpu|cuda(:\d+)?|mps|auto", requested_device):
            raise ValueError(f"requested_device is {requested_device!r}; a run asks for cpu, cuda, cuda:N, mps or auto")
        if on_fail not in ("warn", "raise"):
            raise ValueError(f"on_fail is {on_fail!r}; it is warn or raise")
        self._root, self._vocab = Path(directory), vocab
        self.directory = of_rank(self._root, os.environ)
        if any((self.directory / name).exists() for name in (RUN, STEPS)):
            raise _taken(self.directory)
        self._model, self._optimizer = model, unwrapped(optimizer)
        self._requested = {"requested_device": requested_device, "requested_steps": requested_steps}
        self._sampled = sampled or draws_with_replacement(loader or ())
        self._sizes = {"seq_len": seq_len, "batch_size": batch_size, "corpus_tokens": corpus_tokens}
        self._declared_tokens = seq_len * batch_size if seq_len and batch_size else None
        self._seeds = dict(seeds or {})
        self._tokens_of = tokens_of or token_counter(seq_len)
        self._probe_every = max(probe_every, 1)
        self._on_fail = on_fail
        self._position = CorpusPosition()
        self._watched = None if loader is None else WatchedLoader(loader, self)
        self._audit = residency.DispatchAudit()
        self._gradients: dict[str, int] = {}
        self._warned: set[str] = set()

    @property
    def loader(self) -> WatchedLoader:
        """The loader to iterate over: the one given, watched."""
        if self._watched is None:
            raise ValueError("the recorder was given no loader; pass loader=… to have its wraps counted")
        return self._watched

    def cycle(self) -> Iterator[Any]:
        """Hand out the loader's batches for ever; each time it runs dry is logged as one wrap."""
        return self.loader.cycle()

    def __enter__(self) -> Self:
        self.directory = of_rank(self._root, os.environ)  # torch.distributed may have begun since
        self._claim()
        self._open()
        if self._optimizer is not None:
            self._watch_updates(self._optimizer)
        self._begin_step()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _value: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._close(kind)

    @_guarded
    def step(
        self, loss: torch.Tensor | float, *, grad_norm: torch.Tensor | float | None = None, tokens: int | None = None
    ) -> None:
        """Record one finished optimizer step.

        Args:
            loss: the step's loss, in nats for a language model; a tensor costs the step's only device transfer.
            grad_norm: the norm before clipping, where the loop has it; else the norm that the optimizer was given.
            tokens: the tokens consumed, where no loader is watched.
        """
        try:
            self._record(loss, grad_norm, tokens)
        finally:  # a step that could not be recorded leaves a gap, not a shift
            self._next_step()

    def _record(self, loss: torch.Tensor | float, grad_norm: torch.Tensor | float | None, tokens: int | None) -> None:
        self._audit.pause()
        compiled = self._updates is not None and self._updates.compiled
        if compiled and self._norm is None:
            self._norm = self._gradient_norm()
        skipped = self._updates is not None and not (self._updated_once or compiled)
        norm = None if skipped else self._norm if grad_norm is None else grad_norm
        row: dict[str, Any] = {"step": self._step}
        row["loss"], norm_value = on_host((loss, norm))
        row |= {"lr": self._lr if self._lr is not None else self._learning_rate(), "grad_norm": norm_value}
        drawn = self._declared_tokens if self._watched is None else self._position.take_step()
        row["tokens"] = drawn if tokens is None else tokens
        if self._mark is not None:
            now = time.perf_counter(), time.process_time()
            row |= {"wall_ms": (now[0] - self._mark[0]) * 1e3, "cpu_ms": (now[1] - self._mark[1]) * 1e3}
        if self._watched is not None and not self._sampled:
            row |= {"corpus_position": self._position.position, "wraps": self._position.wraps}
        self._append(self._steps, _known({**row, "skipped": skipped or None}))
        if self._probes(self._step):
            self._probe()

    def _next_step(self) -> None:
        self._norm, self._lr, self._updated_once, self._step = None, None, False, self._step + 1
        if self._updates is not None:
            self._updates.compiled = False
        self._begin_step()

    def _begin_step(self) -> None:
        if self._watched is None:
            self._resume()
        self._mark = time.perf_counter(), time.process_time()

    @_guarded
    def fetching(self) -> None:
        """Keep the making of a batch, which happens on the host, out of the audited step."""
        self._audit.pause()

    @_guarded
    def batch_drawn(self, batch: object) -> None:
        """Count a batch's tokens, and audit the step that it is for where that step is probed."""
        self._position.add(self._tokens_of(batch))
        self._resume()

    @_guarded
    def pass_began(self, *, dry: bool) -> None:
        """Log once that the corpus began again: a wrap after it ran dry, a restart after it was broken off."""
        ended = self._position.begin_pass(dry=dry)
        if self._sampled:
            return
        self._event("wrap" if dry else "restart", wraps=self._position.wraps, corpus_position=ended)

    @_guarded
    def gave_nothing(self) -> None:
        """Log that the loader gave no batch when it was asked to begin."""
        self._event("exhausted", wraps=self._position.wraps, corpus_position=self._position.position)

    def _claim(self) -> None:
        """Make the directory's logs, which no other recorder can then make."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._steps = RowLog(self.directory / STEPS)
            self._events = RowLog(self.directory / EVENTS)
        except FileExistsError:
            raise _taken(self.directory) from None
        except OSError as problem:
            if self._on_fail == "raise":
                raise
            self._failed("_claim", problem)

    @_guarded
    def _open(self) -> None:
        rank, world = rank_and_world(os.environ)
        parameters = sum(p.numel() for p in self._model.parameters())
        facts = {
            **_known(self._requested),
            "resolved_device": residency.resolved_device(self._model),
            "model": _known({"parameters": parameters, "vocab": self._vocab}),
            "data": _known({**self._sizes, "sampled": self._sampled or None}),
            "seeds": {"torch": torch.initial_seed(), **self._seeds},
            **({"rank": rank, "world_size": world} if world > 1 else {}),
            **provenance(),
        }
        if self._steps is not None:
            write_run(self.directory, facts)

    @_guarded
    def _watch_updates(self, optimizer: torch.optim.Optimizer) -> None:
        self._updates = Updates(optimizer, self._updated)

    @_guarded
    def _close(self, kind: type[BaseException] | None) -> None:
        self._audit.pause()
        if self._updates is not None:
            self._updates.close()
        self._event("end", steps=self._step, by=kind.__name__ if kind else "")
        for log in (self._steps, self._events):
            if log is not None:
                log.close()
                if log.lost:
                    self._warn(f"{log.lost} rows could not be written")
        self._steps = self._events = None

    @_guarded
    def _updated(self) -> None:
        """Keep what the optimizer has used: the gradients' norm, the learning rate, where the gradients are."""
        auditing = self._audit.live
        self._audit.pause()
        self._updated_once = True
        self._norm = self._gradient_norm()
        self._lr = self._learning_rate()
        if self._probes(self._step):
            self._gradients = residency.model_bytes(self._model)["gradients"]
        if auditing:
            self._audit.resume()

    def _gradient_norm(self) -> torch.Tensor | None:
        gradients = [p.grad for p in self._model.parameters() if p.grad is not None]
        with torch.no_grad():
            return torch.nn.utils.get_total_norm(gradients) if gradients else None

    def _probes(self, step: int) -> bool:
        return step % self._probe_every == 0 or step in EARLY_PROBES

    def _resume(self) -> None:
        if not self._probes(self._step) or self._unaudited:
            return
        if not self._audited:
            self._unaudited = residency.not_auditable(self._model)
            self._frames = residency.compiled_frames()
        if not self._unaudited:
            self._audited = True
            self._audit.resume()

    @_guarded
    def _probe(self) -> None:
        if self._audited and residency.compiled_frames() != self._frames:
            self._unaudited = "something was compiled in this step, and an audit does not see into compiled code"
            self._audit.restart()
        witnesses, why = testimony()
        found: dict[str, Any] = residency.model_bytes(self._model)
        found["gradients"] = found["gradients"] or self._gradients
        if self._optimizer is not None:
            found |= residency.optimizer_bytes(self._optimizer)
        allocated, no_memory = residency.allocated_bytes(residency.resolved_device(self._model))
        undrawn = "no batch of this step came from recorder.loader, so no op of it was counted"
        unaudited = self._unaudited or self._audit.failure or ("" if self._audited else undrawn)
        no_optimizer = "" if self._optimizer is not None else "the recorder was given no optimizer"
        reasons = {"allocated": no_memory, "dispatch": unaudited, "optimizer": no_optimizer}
        why |= {name: reason for name, reason in reasons.items() if reason}
        found |= {**self._audit.found(), "dispatch": "not-audited" if unaudited else "audited"}
        self._event("device", **found, allocated_bytes=allocated, witnesses=witnesses, why=why)
        self._audit.restart()
        self._audited, self._unaudited, self._gradients = False, "", {}

    def _learning_rate(self) -> float | None:
        groups = getattr(self._optimizer, "param_groups", None)
        return float(groups[0]["lr"]) if groups else None

    def _event(self, event: str, **fields: Any) -> None:
        self._append(self._events, {"event": event, "step": self._step, **fields})

    def _append(self, log: RowLog | None, row: Mapping[str, Any]) -> None:
        if log is None:
            return
        log.append(row)
        if log.problem is not None:
            self._warn(f"the run directory cannot be written: {failure.described(log.problem)}; rows wait")
        elif log.lost:
            lost, log.lost = log.lost, 0
            self._event("recorder-failure", what=f"{lost} rows could not be written", costs=failure.ALL)

    def _failed(self, during: str, problem: Exception) -> None:
        what = f"{during}: {failure.described(problem)}"
        self._event("recorder-failure", what=what, costs=failure.costs(during))
        self._warn(f"failed in {what}")

    def _warn(self, what: str) -> None:
        """Warn once of each kind of trouble; where warnings are errors, on standard error, for training goes on."""
        kind = what.partition(":")[0]
        if kind in self._warned:
            return
        self._warned.add(kind)
        message = f"weighbridge recorder: {what}; training goes on"
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=4)
        except RuntimeWarning:
            sys.stderr.write(f"{message}\n")


def _taken(directory: Path) -> FileExistsError:
    return FileExistsError(f"{directory} holds a run already; record into a new directory")


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}
