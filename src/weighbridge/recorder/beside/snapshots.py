"""Analysis checkpoints: what weights and gradients were at a step, on a schedule and where something triggers one.

One is a file of `ck.analysis.v1`, written in one move. Above its budget none is written, and an event says so.
"""

import collections
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from weighbridge.core import Doubles, sha256
from weighbridge.diagnosis.attention_maps import spread
from weighbridge.quantities.runs import ANALYSIS, SNAPSHOT, is_scheduled, snapshot_name
from weighbridge.recorder.channels import Channel, Watched
from weighbridge.recorder.learning.tensor_norms import every_so_many, here
from weighbridge.recorder.passes.diagnostics import OneLook
from weighbridge.recorder.run_directory import put

WINDOW, FEWEST, AGAIN = 50, 10, 50  # rows before one; the fewest that tell; steps before one is triggered again
RISE, JUMP, SILENT = 2.0, 10.0, 5  # times a mean of losses, times a median of norms, looks in a row without a gradient
NAMED = 8  # tensors in a reason
LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS, SIDE = 64, 32
SAMPLED, PART = 2**20, 2**22  # elements: of order statistics; that are widened at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Which tensors get a grid of their elements, by globs, and the most bytes of a file and of all."""

    grids: Sequence[str] = ()
    file_bytes: int = 4 << 20
    run_bytes: int = 1 << 30


class Triggers:
    """Why a step is looked at closer; of a loss or a gradient again after 50 steps, of a tensor once."""

    def __init__(self) -> None:
        self._losses: collections.deque[float] = collections.deque(maxlen=WINDOW)
        self._norms: collections.deque[float] = collections.deque(maxlen=WINDOW)
        self._silent: collections.Counter[str] = collections.Counter()
        self._last: dict[str, int] = {}

    def reasons(self, row: Mapping[str, Any], tensors: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the reasons of a row of steps, and of the rows of its tensors where there are any."""
        usual = fmean(self._losses) if len(self._losses) >= FEWEST else math.inf
        middle = median(self._norms) if len(self._norms) >= FEWEST else math.inf
        found = {
            "loss": _above(row.get("loss"), RISE, usual, f"mean of the {len(self._losses)} losses"),
            "gradient": _above(row.get("grad_norm"), JUMP, middle, f"median of the {len(self._norms)} gradient norms"),
            "dead": self._dead(tensors),
        }
        for name, values in (("loss", self._losses), ("grad_norm", self._norms)):
            if math.isfinite(value := row.get(name, math.nan)):
                values.append(value)
        step = row["step"]
        due = {kind: why for kind, why in found.items() if why and step - self._last.get(kind, -AGAIN) >= AGAIN}
        self._last |= dict.fromkeys(due.keys() - {"dead"}, step)
        return [f"{kind}: {why}" for kind, why in due.items()]

    def _dead(self, tensors: Iterable[Mapping[str, Any]]) -> str:
        """Return which tensors have just had no gradient for so many looks."""
        for one in tensors:
            self._silent[one["name"]] = 0 if one.get("grad_used") else self._silent[one["name"]] + 1
        dead = [name for name, looks in self._silent.items() if looks == SILENT]
        for name in dead:
            self._silent[name] += 1  # said once
        more = f" and {len(dead) - NAMED} more" if len(dead) > NAMED else ""
        return f"{', '.join(dead[:NAMED])}{more} had no gradient in {SILENT} looks" if dead else ""


def _above(value: Any, times: float, usual: float, of: str) -> str:
    if value is None:
        return ""
    if not math.isfinite(value):
        return "it is not finite"
    beyond = usual > 0 and value > times * usual
    return f"{value:.6g} is more than {times:g} times {usual:.6g}, the {of} before it" if beyond else ""


class Snapshots(Channel):
    """Keep what gradients were in the steps of the schedule, and write a file once the row of the step is known."""

    columns = ("analysis",)
    every_step = True

    def __init__(self, watched: Watched, asked: Analysis, first_step: int, looks: OneLook) -> None:
        super().__init__(watched)
        self._asked, self._first, self._left, self._looks = asked, first_step, asked.run_bytes, looks
        self._triggers, self._gradients, self._over = Triggers(), dict[str, Any](), False
        names = [name for name, _ in (*watched.model.named_parameters(), *watched.model.named_modules()) if name]
        if idle := [glob for glob in asked.grids if not any(fnmatchcase(name, glob) for name in names)]:
            raise ValueError(f"analysis: {', '.join(idle)} names no parameter and no part, as {names[0]} does")

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look at the batch with the weights that a gradient is about to come of."""
        self._looks.keep(args, kwargs)
        if not self._over and is_scheduled(self.watched.step + self._first):
            self._looks()

    def update_ended(self) -> None:
        """Measure the gradients as the update used them."""
        if not self._over and is_scheduled(self.watched.step + self._first):
            self._gradients = self._of_gradients()

    def write(
        self, directory: Path, named: Mapping[str, Any], row: Mapping[str, Any], tensors: Iterable[Mapping[str, Any]]
    ) -> dict[str, Any] | None:
        """Write the file of a step where one is due, and return the event that announces it."""
        if self._over:
            return None
        step: int = row["step"]
        reasons = [*(["schedule"] if is_scheduled(step) else []), *self._triggers.reasons(row, tensors)]
        if not reasons:
            return None
        model, loss = self.watched.model, row.get("loss")
        weights = {
            name: statistics(one, grid=self._with_grid(name))
            for name, one in model.named_parameters()
            if one.is_floating_point() and one.numel()
        }
        size = sum(one.numel() for one in model.parameters())
        content = {"schema_version": SNAPSHOT, "model_scale_hint": f"{size / 1e6:.3g}M", "step": step, **named}
        if loss is not None:
            content["loss"] = rounded(loss) if math.isfinite(loss) else str(loss)
        gradients, self._gradients = self._gradients or self._of_gradients(), {}
        content |= {"reasons": reasons, "weights": weights, "gradients": gradients, **self._inside()}
        text, most = json.dumps(content, separators=(",", ":")), min(self._asked.file_bytes, self._left)
        event = {"reasons": reasons, "bytes": len(text)}
        if len(text) > most:
            self._over = True  # the next would be no smaller
            return {**event, "refused": f"{len(text)} bytes, and {most} may be; no more are written"}
        (directory / ANALYSIS).mkdir(exist_ok=True)
        put(directory / ANALYSIS / snapshot_name(step), text)
        self._left -= len(text)
        home = f"attempt-{named['attempt']}/" if named["attempt"] > 1 else ""
        return {**event, "file": f"{home}{ANALYSIS}/{snapshot_name(step)}", "sha256": sha256(text.encode())}

    def _inside(self) -> dict[str, Any]:
        """Return activations and attention of the batch that stays the same; what cannot be seen is left out."""
        found, values, maps = self._looks(), dict[str, dict[str, float]](), dict[str, dict[str, Any]]()
        for one in found[1].activations if found else ():
            figures = {"mean": one.mean, "std": one.std, "sparsity": one.zeros}
            values[one.name] = {name: rounded(value) for name, value in figures.items() if math.isfinite(value)}
        for of in found[1].attention if found else ():
            heads: dict[str, Any] = {"entropy_per_head": of.entropy, "max_attn_per_head": of.largest}
            heads |= {"sampled_qk_grid_32x32_per_head": of.grid.tolist()} if self._with_grid(of.name) else {}
            maps[of.name] = {name: rounded_or_none(value) for name, value in heads.items()}
        return {name: part for name, part in (("activations", values), ("attention", maps)) if part}

    def _with_grid(self, name: str) -> bool:
        return any(fnmatchcase(name, glob) for glob in self._asked.grids)

    def _of_gradients(self) -> dict[str, Any]:
        """Return those that there are: of a step that nobody planned to look at, what was not cleared since."""
        found = ((name, one.grad) for name, one in self.watched.model.named_parameters() if one.requires_grad)
        return {name: gradient_statistics(one) for name, one in found if one is not None and one.numel()}


def statistics(tensor: torch.Tensor, *, grid: bool) -> dict[str, Any]:
    """Return mean, std, min, max, percentiles and histogram of what is finite, and how much is not."""
    (whole,) = here([tensor.detach()])
    flat = whole.reshape(-1)
    finite = flat[torch.isfinite(flat)]
    found: dict[str, Any] = {"elements": flat.numel(), "not_finite": flat.numel() - finite.numel()}
    if not finite.numel():
        return found
    wide = torch.float32 if flat.is_mps else torch.float64
    parts = finite.split(PART)  # type: ignore[no-untyped-call]
    mean = float(sum(float(part.to(wide).sum()) for part in parts)) / finite.numel()
    variance = float(sum(float((part.to(wide) - mean).square().sum()) for part in parts)) / finite.numel()
    low, high = (float(one) for one in finite.float().aminmax())
    found |= {"mean": rounded(mean), "std": rounded(variance**0.5), "min": rounded(low), "max": rounded(high)}
    ordered = _ordered(finite)
    places = (round(level * (len(ordered) - 1)) for level in LEVELS)
    found["percentiles"] = {f"{level:g}": rounded(ordered[at]) for level, at in zip(LEVELS, places, strict=True)}
    found["histogram"] = _histogram(ordered)
    if grid:  # at most 32 rows of 32 elements spread over the tensor, seen as a matrix
        matrix = whole.reshape(len(whole), -1) if whole.dim() > 1 else whole.reshape(1, -1)
        rows, columns = (spread(size, SIDE) for size in matrix.shape)
        cells = matrix.cpu()[rows][:, columns] if matrix.is_mps else matrix[rows][:, columns].double().cpu()
        found["sampled_grid_32x32"] = rounded_or_none(cells.tolist())
    return found


def gradient_statistics(gradient: torch.Tensor) -> dict[str, Any]:
    """Return its 2-norm and histogram; the norm is absent where it is not finite."""
    (flat,) = here([gradient.detach()])
    norm = float(torch.linalg.vector_norm(flat.float()))
    finite = flat[torch.isfinite(flat)]
    found = {"norm": rounded(norm)} if np.isfinite(norm) else {}
    return found | ({"histogram": _histogram(_ordered(finite))} if finite.numel() else {})


def rounded(value: float) -> float:
    """Return a number with six digits."""
    return float(f"{value:.6g}")


def rounded_or_none(value: Any) -> Any:
    """Return a number with six digits, None for what is not finite; of lists each of theirs."""
    if isinstance(value, (list, tuple)):
        return [rounded_or_none(one) for one in value]
    return rounded(value) if math.isfinite(value) else None


def _ordered(finite: torch.Tensor) -> Doubles:
    sample = every_so_many(finite, SAMPLED) if finite.numel() > SAMPLED else finite
    ordered: Doubles = np.sort(sample.float().cpu().numpy().astype(np.float64))
    return ordered


def _histogram(ordered: Doubles) -> dict[str, Any]:
    edges = np.linspace(ordered[0], ordered[-1], BINS + 1)
    counts = np.diff(np.searchsorted(ordered, edges[:-1]), append=len(ordered))
    return {"bins": [rounded(one) for one in edges.tolist()], "counts": counts.tolist()}
