"""Training as people do it, with and without a recorder: what is learnt must be the same to the bit."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.recorder.training import SHAPE, Training, training
from torch import nn

from weighbridge.recorder import Recorder

PASSES = 3


@dataclass(frozen=True)
class Learnt:
    """What a run came to: its weights and the state of the random numbers, and how much was compiled."""

    digest: str
    graphs: int
    ops: int


def digest(*parts: Any) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if part.dim() else b"")
        found.update(repr(part.tolist() if not part.dim() else tuple(part.shape)).encode())
    return found.hexdigest()[:12]


def learnt(train: Callable[[], nn.Module]) -> Learnt:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    try:
        weights = [*train().state_dict().values()]
        counted = torch._dynamo.utils.counters["stats"]
        return Learnt(
            digest(*weights, torch.get_rng_state()), int(counted["unique_graphs"]), int(counted["calls_captured"])
        )
    finally:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()


def recording(directory: Path | None, work: Training, model: nn.Module | None = None, **options: Any) -> Any:
    if directory is None:
        return contextlib.nullcontext(None)
    return Recorder(
        directory, model or work.model, work.optimizer, loader=work.loader, on_fail="raise", **SHAPE, **options
    )


def loop(
    directory: Path | None,
    *,
    given: Callable[[nn.Module], nn.Module] | None = None,
    wrap: Callable[[nn.Module], nn.Module] = lambda model: model,
    autocast: torch.dtype | None = None,
    scaler: bool = False,
    micro_batches: int = 1,
    compile_step: str = "",
    evaluate: bool = False,
    **options: Any,
) -> nn.Module:
    """Train as PyTorch's own recipes do; the recorder is given the raw model, or what `given` makes of the wrapped."""
    work = training()
    forward = wrap(work.model)
    scale = torch.amp.GradScaler("cpu", enabled=scaler, init_scale=2.0**22)  # the first steps are skipped
    update = torch.compile(work.optimizer.step, backend=compile_step) if compile_step else work.optimizer.step
    with recording(directory, work, given(forward) if given else None, **options) as rec:
        for _ in range(PASSES):
            for number, batch in enumerate(rec.loader if rec else work.loader, 1):
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                    logits = forward(batch[:, :-1])
                    loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
                scale.scale(loss / micro_batches).backward()  # type: ignore[no-untyped-call]
                if number % micro_batches:
                    continue
                if scaler:
                    scale.step(work.optimizer)
                    scale.update()
                else:
                    update()
                if evaluate:
                    forward.eval()
                    with torch.no_grad():
                        forward(batch[:, :-1])
                    forward.train()
                if rec:
                    rec.step(loss)
                work.optimizer.zero_grad()
    return work.model
