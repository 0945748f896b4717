"""What a model is fed, and in which mode: batches and rows that come again or are evaluated, equal tokens, labels."""

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from weighbridge.diagnosis.fixed_batch import LABELS
from weighbridge.recorder.channels import Cell, Channel, Watched
from weighbridge.recorder.learning.tensor_norms import every_so_many

REMEMBERED = 1 << 18  # batches of a pass, and rows of a run
ELEMENTS = 1 << 17  # of an array that are looked at, evenly spaced
PASSES, ROWS, WIDTH = 16, 64, 1024  # of a step, of each, and of each row: compared with what is evaluated
PARTS = 16  # of a list that are looked through for arrays
PASS = 8  # batches of a pass at least, whose order is like that of another by no chance
ROW = 4  # elements of which a row has at least, to be like another by no chance
Array = npt.NDArray[Any]


class Parts(NamedTuple):
    """The arrays of a batch that are looked at: what goes into the model, what counts of it, and what it shall give."""

    inputs: torch.Tensor
    mask: torch.Tensor | None
    labels: torch.Tensor | None


class Batches(Channel):
    """CRC-32 of the step's batches, whether one comes again, equal rows, tokens, and labels.

    Where no loader is watched, a batch is what goes into the model. One that is not on the host waits for the row, in
    steps in which all channels look.
    """

    columns = (
        *("batch_crc", "batch_repeats", "order_repeats", "repeated_rows_share", "top_token_share"),
        *("labels_active_share", "input_mean", "input_std"),
    )
    every_step = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._drawn = False
        self._pass = watched.passes
        self._seen: dict[int, None] = {}
        self._order, self._before = list[int](), list[int]()  # of this pass, and of the one before
        self._whole = True  # all batches of this pass were looked at
        self._waiting: list[Parts] = []
        self._labels = [0, 0]

    def batch(self, batch: object) -> None:
        """Look at a batch of the loader."""
        self._drawn = True
        self._take(batch)

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look at what goes into the model: at all of it where no loader is watched."""
        if not self._drawn:
            self._take([*args, kwargs])
        if self.watched.early and (parts := parts_of([*args, kwargs])) and parts.inputs.is_floating_point():
            inputs = every_so_many(parts.inputs, ELEMENTS).float()
            self.found |= {"input_mean": inputs.mean(), "input_std": inputs.std(correction=0)}

    def row(self) -> Mapping[str, Cell]:
        """Return what was found."""
        while self._waiting:
            self._look(self._waiting.pop(0))
        found = super().row()
        (active, labels), self._labels = self._labels, [0, 0]
        return {**found, "labels_active_share": active / labels} if labels else found

    def _take(self, batch: object) -> None:
        if self._pass != self.watched.passes:
            self._pass, self._whole = self.watched.passes, True
            self._seen.clear()
            self._order, self._before = [], self._order
        parts = parts_of(batch)
        if parts is not None and all(part is None or part.is_cpu for part in parts):
            self._look(parts)
        elif parts is not None and self.watched.early:
            self._waiting.append(parts)
        else:
            self._whole = False

    def _look(self, parts: Parts) -> None:
        rows = _on_host(parts.inputs)
        read, width = rows.tobytes(), rows.nbytes // len(rows)
        found = self.found
        found["batch_crc"] = zlib.crc32(read, int(found.get("batch_crc", 0)))
        if self._drawn:
            # 64 bits: of 50,000 batches two would share their CRC by chance in one pass of four.
            again = (content := hash((rows.shape, read))) in self._seen
            if again or self._whole:
                found["batch_repeats"] = max(int(again), found.get("batch_repeats", 0))
            self._seen[content] = None
            self._ordered(content)
            if len(self._seen) > REMEMBERED:
                del self._seen[next(iter(self._seen))]
        if rows.ndim > 1 and rows.size >= ROW * len(rows):
            different = len({read[at : at + width] for at in range(0, len(read), width)})
            share = (len(rows) - different) / len(rows)
            found["repeated_rows_share"] = max(share, found.get("repeated_rows_share", 0))
        if parts.inputs.dim() == 2 and rows.dtype.kind in "iu" and rows.itemsize > 1:  # bytes are pixels
            counted = rows if parts.mask is None else rows[_on_host(parts.mask) != 0]
            if counted.size:
                # Counting needs no sort; places for all are there where the numbers are small.
                tokens = counted.ravel()
                small = 0 <= tokens[tokens.view(f"u{tokens.itemsize}").argmax()] < ELEMENTS  # as is none of them
                tokens = tokens.astype(np.int64, copy=False)
                times = np.bincount(tokens) if small else np.unique(tokens, return_counts=True)[1]
                share = int(times[times.argmax()]) / tokens.size
                found["top_token_share"] = max(share, found.get("top_token_share", 0))
        if parts.labels is not None:
            labels = _on_host(parts.labels)
            found["batch_crc"] = zlib.crc32(labels.tobytes(), int(found["batch_crc"]))
            if labels.shape != rows.shape or labels.min() < 0 or labels.max() > 1:  # else it may be a mask
                self._labels[0] += int((labels >= 0).sum())  # others are ignored: -100, or nanoGPT's -1
                self._labels[1] += labels.size

    def _ordered(self, content: int) -> None:
        """Compare with the batch at this place in the pass before, of a loader that says that it shuffles."""
        if not (self.watched.shuffles and self._whole) or (at := len(self._order)) >= REMEMBERED:
            return
        self._order.append(content)
        if PASS <= len(self._before) > at:
            same = int(self._before[at] == content)
            self.found["order_repeats"] = min(same, self.found.get("order_repeats", 1))


class HeldOut(Channel):
    """The share of the rows of an evaluation that went into a training pass of an earlier step, bit for bit.

    And how often rows of tokens were trained on at the mean, of those that were looked at.

    Zeros at either end of a row, and what a mask leaves out, are none of it: it may be padded otherwise. Where not all
    rows are remembered that were trained on, the share grows by as much, and none that were found is no answer.
    """

    columns = ("evaluation_rows_trained", "row_passes")
    every_step = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._known: dict[int, None] = {}
        self._evaluated, self._trained = list[torch.Tensor](), list[torch.Tensor]()
        self._tokens = False  # floats may be pictures, which are trained on for hundreds of passes
        self._fed = self._before = self._remembered = 0  # rows, however often each came; those of the steps before

    def evaluation_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep rows of an evaluation; in training mode it may be any pass."""
        if not self.watched.model.training and (parts := parts_of([*args, kwargs])):
            _keep(self._evaluated, parts)

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep rows that are learnt from; those of a device are waited for where all channels look."""
        if parts := parts_of([*args, kwargs]):
            self._fed += len(parts.inputs)
            self._tokens = not parts.inputs.is_floating_point() and parts.inputs.element_size() > 1
            if self.watched.early or parts.inputs.is_cpu:
                _keep(self._trained, parts)

    def row(self) -> Mapping[str, Cell]:
        """Return the share; rows that this very step learns from were not held out."""
        if not (self._evaluated or self._trained):
            return {}
        hashes = list(_hashes(self._trained))
        trained = dict.fromkeys(hashes)
        evaluated = set(_hashes(self._evaluated)) - trained.keys()
        share = len(evaluated & self._known.keys()) / len(evaluated) if evaluated and self._known else None
        if share is not None and self._remembered < self._before:
            share = min(share * self._before / self._remembered, 1.0) or None
        self._known |= trained
        self._remembered += len(hashes)
        self._before = self._fed
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
            self._remembered -= 1
        passes = self._remembered / len(self._known) if hashes and self._tokens else None
        return {"evaluation_rows_trained": share, "row_passes": passes}


def parts_of(batch: object) -> Parts | None:
    """Return what is looked at of a batch, or None of one without an array of numbers."""
    if not (arrays := list(_arrays(batch))):
        return None
    named = dict(arrays)
    inputs, mask = named.get("input_ids", arrays[0][1]), named.get("attention_mask")
    second = arrays[1][1] if len(arrays) == 2 and not arrays[1][0] else None
    labels = next((named[name] for name in LABELS if name in named), second)
    whole = labels is not None and not labels.is_floating_point() and labels.dtype != torch.bool
    return Parts(inputs, mask if mask is not None and mask.shape == inputs.shape else None, labels if whole else None)


def _arrays(batch: object, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(batch, np.ndarray) and batch.dtype.kind in "iuf":
        batch = torch.from_numpy(batch if batch.flags.writeable else batch.copy())
    if isinstance(batch, torch.Tensor):
        if batch.numel() and batch.dim() and batch.layout is torch.strided:
            yield name, batch.detach()
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from _arrays(value, str(key))
    elif isinstance(batch, (tuple, list)):
        for value in batch[:PARTS]:
            yield from _arrays(value)


def _on_host(array: torch.Tensor) -> Array:
    rows = array.flatten(1) if array.dim() > 2 else array
    if array.numel() > ELEMENTS:
        rows = rows[..., :: -(-array.numel() // ELEMENTS) | 1]
    rows = rows if rows.is_cpu else rows.cpu()
    if rows.dtype is torch.bfloat16:
        rows = rows.view(torch.int16)
    found: Array = rows.numpy()
    return found


def _keep(kept: list[torch.Tensor], parts: Parts) -> None:
    if len(kept) < PASSES and parts.inputs.dim() > 1:
        rows = parts.inputs[:ROWS] if parts.mask is None else parts.inputs[:ROWS] * (parts.mask[:ROWS] != 0)
        rows = rows.flatten(1)[:, :: -(-rows[0].numel() // WIDTH) | 1]
        kept.append(rows.clone(memory_format=torch.contiguous_format))


def _hashes(kept: list[torch.Tensor]) -> Iterator[int]:
    while kept:
        rows = kept.pop().cpu()
        cut = (row.tobytes().strip(b"\0") for row in rows.view(torch.uint8).numpy())
        yield from (hash(one) for one in cut if len(one) > (ROW - 1) * rows.element_size())


class Modes(Channel):
    """How many modules have `training` off in a forward pass with gradients; the most of the step's passes.

    What has parameters and trains none of them may evaluate for good, with all that it holds. And how many passes
    without gradients dropped out or moved running means.
    """

    columns = ("evaluating_modules", "training_evaluations")
    every_step = True

    _modules: tuple[torch.nn.Module, ...] = ()
    _known: tuple[list[torch.nn.Parameter], list[bool]] | None = None

    def evaluation_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Count a pass without gradients that differs in training mode."""
        inside = self.watched.model.modules()
        differ = (one for one in inside if isinstance(one, _NormBase) or (isinstance(one, _DropoutNd) and one.p > 0))
        trains = any(one.training for one in differ)
        self.found["training_evaluations"] = self.found.get("training_evaluations", 0) + trains

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Count them."""
        parameters = self.watched.parameters()
        known = parameters, [one.requires_grad for one in parameters]
        if self._known is None or self._known[0] is not parameters or self._known[1] != known[1]:
            self._known = known
            self._modules = tuple(_trained(self.watched.model, {self.watched.model}))
        evaluating = sum([not module.training for module in self._modules])
        self.found["evaluating_modules"] = max(self.found.get("evaluating_modules", 0), evaluating)


def _trained(module: torch.nn.Module, seen: set[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    parameters = list(module.parameters())
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        return
    own = list(module.parameters(recurse=False))
    if not own or any(parameter.requires_grad for parameter in own):
        yield module
    for child in module.children():
        if child not in seen:
            seen.add(child)
            yield from _trained(child, seen)
