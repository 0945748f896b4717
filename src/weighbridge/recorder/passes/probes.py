"""What evaluations of a few rows of the last batch tell: whether they repeat, look ahead, and what the targets were.

They run on a copy of the model that shares its parameters and nothing else, without hooks and gradients, and give the
random numbers back: training finds everything as it was.
"""

import contextlib
import copy
import random
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

import numpy as np
import torch

from weighbridge.diagnosis.fixed_batch import Call, cut, evaluated, tokens
from weighbridge.recorder import residency
from weighbridge.recorder.channels import SELDOM, Cell, Channel, Watched
from weighbridge.recorder.learning.loss_scale import lowest, spread

ROWS, POSITIONS = 2, 64
CAUSAL = 1e-5
# So many equal tokens at the end of a row, and one in so many of the row, are padding where half of the rows agree.
TAIL, OF_ROW = 4, 8
DEVICES = ("cpu", "cuda")  # whose random numbers can be given back


class Evaluations(Channel):
    """How far logits of the same rows differ: as they are, once other rows or tokens do, and without padding."""

    columns = ("evaluation_change", "neighbour_change", "future_change", "past_change", "padding_change")
    period = SELDOM
    _call: Call | None = None
    _size: tuple[int, ...] = (ROWS, POSITIONS)  # of a batch; () is the whole

    def forward_ended(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: torch.Tensor) -> None:
        """Keep a few rows as the model got them."""
        call: Call = {**dict(enumerate(args)), **kwargs}
        self._call = cut(call, *self._size)
        kind = output.device.type
        self._precision = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)

    def row(self) -> Mapping[str, Cell]:
        """Evaluate."""
        call, self._call = self._call, None
        if call is None or (model := copied(self.watched)) is None:
            return {}
        kind, dtype, enabled = self._precision
        # What is cast under no_grad may not stay in the cache of an autocast that the loop is in.
        with random_numbers_kept(), torch.autocast(kind, dtype, enabled, cache_enabled=False):
            if (first := self._first(model, call)) is None:
                return {}
            found: dict[str, Cell] = {"evaluation_change": _largest(first, evaluated(model, call))}
            found |= _apart(model, call, first)
            encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
            if (ids := _tokens(call, first)) is not None and not encodes:
                found |= self._ahead(model, call, ids, first) | _padded(model, call, ids, first)
        return found

    def _first(self, model: torch.nn.Module, call: Call) -> torch.Tensor | None:
        try:
            return evaluated(model, call)
        except RuntimeError:
            if not self._size:
                raise
            self._size = ()  # from the next look on: a model may take batches of one size alone
            return None

    def _ahead(self, model: torch.nn.Module, call: Call, ids: torch.Tensor, before: torch.Tensor) -> dict[str, Cell]:
        half = ids.shape[1] // 2
        mask = call.get("attention_mask", call.get(1))  # by name, or after the tokens
        if not isinstance(mask, torch.Tensor) or mask.shape != ids.shape or (mask > 1).any():
            mask = torch.ones_like(ids)
        both = (mask != 0) & (mask[:, :half] != 0).any(1, keepdim=True) & (mask[:, half:] != 0).any(1, keepdim=True)
        if not both.any():
            return {}
        low, high = ids.amin(), ids.amax()
        other = torch.where(low < high, high, torch.where(low > 0, low - 1, low + 1))
        others = torch.where(ids == low, other, low)  # for each another token of the batch: one of the vocabulary

        def changed(tokens: torch.Tensor, part: slice) -> torch.Tensor | None:
            after = evaluated(model, {name: tokens if value is ids else value for name, value in call.items()})
            return _largest(before[:, part][both[:, part]], None if after is None else after[:, part][both[:, part]])

        ahead = changed(torch.cat([ids[:, :half], others[:, half:]], 1), slice(half))
        self.watched.causal = None if ahead is None else bool(ahead <= CAUSAL)
        past = changed(torch.cat([others[:, :half], ids[:, half:]], 1), slice(half, None))
        return {"future_change": ahead, "past_change": past}


def _apart(model: torch.nn.Module, call: Call, before: torch.Tensor) -> dict[str, Cell]:
    """Return how far the first row's logits change once all are that row; a matrix `[rows, rows]` compares them."""
    rows = len(before)
    if rows < 2 or before.shape == (rows, rows):
        return {}
    tensors = {name: value for name, value in call.items() if isinstance(value, torch.Tensor) and value.dim()}
    after = evaluated(model, call | {name: value[[0] * len(value)] for name, value in tensors.items()})
    return {"neighbour_change": _largest(before[:1], None if after is None else after[:1])}


def _padded(model: torch.nn.Module, call: Call, ids: torch.Tensor, before: torch.Tensor) -> dict[str, Cell]:
    """Return how far logits change once the mask leaves out all padding; nothing is evaluated where it did."""
    pad, mask = getattr(getattr(model, "config", None), "pad_token_id", None), call.get("attention_mask")
    if not isinstance(pad, int) or not isinstance(mask, torch.Tensor) or mask.shape != ids.shape:
        return {}
    is_pad = ids == pad
    runs = torch.stack([is_pad.cumprod(1), is_pad.flip(1).cumprod(1).flip(1)])
    ends = (runs * (runs.sum(2, keepdim=True) > 1)).any(0)  # one may be written
    seen = ends & (mask != 0)
    if not seen.any():
        return {"padding_change": 0.0} if ends.any() else {}
    after = evaluated(model, call | {"attention_mask": mask.masked_fill(seen, 0)})
    return {"padding_change": _largest(before[~ends], None if after is None else after[~ends])}


class Targets(Channel):
    """The share of targets that are the next input token, and that the model sees, as the gradient of the logits tells.

    The gradient of a cross-entropy is negative at the target alone. At most 64 positions of each micro-batch are read,
    of a model of which it is known whether it looks ahead, and whose logits are of tokens. And the share of all targets
    that are padding.
    """

    columns = ("target_is_next_share", "target_seen_share", "padding_targets_share")

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._pending: list[tuple[torch.Tensor | None, Any]] = []
        self._counted: list[torch.Tensor] = []

    def forward_ended(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: torch.Tensor) -> None:
        """Keep the tokens."""
        self._pending.append((_tokens({**dict(enumerate(args)), **kwargs}, output), kwargs.get("attention_mask")))

    def backward_begins(self, gradient: torch.Tensor) -> None:
        """Compare the targets of a pass with them; of two passes forward, nobody knows which one this is of."""
        ids, mask = self._pending[0] if len(self._pending) == 1 else (None, None)
        self._pending.clear()
        if ids is None:
            return
        least, targets = lowest(self.watched, gradient)
        active = least < 0
        active[ids.shape[1] - 1 :: ids.shape[1]] = False  # what comes after the last is not here
        following = ids.roll(-1, 1).flatten()
        padded = active & (targets == following) & padding(ids, mask).roll(-1, 1).flatten()
        rows = spread(active)
        known = active[rows] & ((gradient.flatten(0, -2)[rows] < 0).sum(-1) == 1) & (ids.amax() < gradient.shape[-1])
        right = known & (targets[rows] == following[rows])
        self._counted.append(torch.stack([right.sum(), known.sum(), padded.sum(), active.sum()]))

    def row(self) -> Mapping[str, Cell]:
        """Return the share."""
        counted, self._counted = self._counted, []
        self._pending.clear()
        right, known, padded, active = torch.stack(counted).sum(0).tolist() if counted else (0, 0, 0, 0)
        found: dict[str, Cell] = {"padding_targets_share": padded / active} if active else {}
        if known and self.watched.causal is not None:
            found["target_seen_share"] = 0.0 if self.watched.causal else right / known
            found |= {"target_is_next_share": right / known} if self.watched.causal else {}
        return found


def padding(ids: torch.Tensor, mask: Any) -> torch.Tensor:
    """Return which places are padding: what a mask leaves out, else the same token at the ends of half of the rows."""
    if isinstance(mask, torch.Tensor) and mask.shape == ids.shape:
        return mask == 0
    tail = (ids == ids[:, -1:]).flip(1).cumprod(1).flip(1)
    long = tail.sum(1) >= max(TAIL, ids.shape[1] // OF_ROW)
    alike = long & (ids[:, -1] == ids[:, -1].where(long, -1).mode().values)
    return tail.bool() & alike[:, None] & (alike.sum() >= max(2, len(ids) / 2))  # one row agrees with itself


def copied(watched: Watched) -> torch.nn.Module | None:
    """Return a copy of the model that shares its parameters and nothing else, in evaluation.

    None where a rank cannot call it alone, a call would write to it or compile it anew, or a lambda keeps its parts.
    """
    model = watched.bare()
    modules, parameters = list(model.modules()), list(model.parameters())
    spread = any("Parallel" in type(one).__name__ for one in modules)
    writes = any(getattr(one, "max_norm", None) is not None for one in modules)
    plain = all(type(one) is torch.nn.Parameter and one.numel() and one.device.type in DEVICES for one in parameters)
    kept = [item for module in modules for item in vars(module).items()]
    bound = any(isinstance(one, FunctionType) and one.__closure__ and name[:2] != "__" for name, one in kept)
    if spread or writes or bound or not plain or residency.compiled(watched.model):
        return None
    memo: dict[int, Any] = {id(one): one for one in (*parameters, watched.optimizer)}
    for name, one in kept:
        if "_hooks" in name:
            memo[id(one)] = type(one)()
        elif isinstance(one, torch.Tensor):  # one with a graph behind it cannot be copied as it is
            memo.setdefault(id(one), one.detach().clone())
    copied = copy.deepcopy(model, memo).eval()
    own = all(getattr(vars(one).get("forward", one.forward), "__self__", None) is one for one in copied.modules())
    return copied if own else None


@contextlib.contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Restore the states of the random generators at the end."""
    states = random.getstate(), np.random.get_state()
    try:
        begun = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # asking for their states would begin it
        with torch.random.fork_rng(range(torch.cuda.device_count()) if begun else ()):
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _largest(one: torch.Tensor, other: torch.Tensor | None) -> torch.Tensor | None:
    if other is None or one.shape != other.shape or not one.numel():
        return None
    return torch.where(one == other, 0, (one.float() - other.float()).abs()).amax()  # infinities are equal


def _tokens(call: Call, logits: torch.Tensor) -> torch.Tensor | None:
    ids = tokens(call)
    return ids if ids is not None and logits.dim() == 3 and logits.shape[:2] == ids.shape else None
