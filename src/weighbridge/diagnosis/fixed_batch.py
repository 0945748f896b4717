"""How a model is called: arguments by place or name, cut to a few rows, and what in them is tokens and targets."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

Call: TypeAlias = dict[Any, Any]  # arguments by place or name
LABELS = ("labels", "label", "label_ids", "targets", "target")
IGNORED, WHOLE = -100, 2**31
SOME = 0.3  # of the labels: of a masked model's, a tenth of the tokens may have been left as they are
INTEGERS = (torch.int64, torch.int32)
GOLDEN = 2.399963  # an angle whose multiples fall nowhere twice


def call_of(batch: object) -> Call:
    """Return how a model is called with a batch: a mapping is by name, a tuple or list by place."""
    if isinstance(batch, Mapping):
        return {str(name): value for name, value in batch.items()}
    return dict(enumerate(batch)) if isinstance(batch, (tuple, list)) else {0: batch}


def cut(call: Call, rows: int = WHOLE, positions: int = WHOLE) -> Call | None:
    """Return copies of the first rows and positions, None where these are not known or it is not of tensors.

    Positions are cut of tokens alone. The whole of what is of tensors, numbers and texts can always be copied.
    """
    if not all(value is None or isinstance(value, (torch.Tensor, int, float, str)) for value in call.values()):
        return None
    tensors = {name: value for name, value in call.items() if isinstance(value, torch.Tensor)}
    wide = {value.shape[1] for value in tensors.values() if value.dim() > 1}
    long = (ids := tokens(call)) is not None and ids.shape[1] > positions
    alike = len({len(value) for value in tensors.values() if value.dim()}) == 1 and not (long and len(wide) > 1)
    if rows < WHOLE and not alike:
        return None
    places = (slice(rows), slice(positions)) if long else (slice(rows),)
    kept = {name: value[places[: value.dim()]] if value.dim() else value for name, value in tensors.items()}
    return call | {name: value.detach().clone() for name, value in kept.items()}


def scattered(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return so many numbers between -1 and 1 in no order, always the same: as good as drawn."""
    return torch.cos(torch.arange(count, dtype=dtype) * GOLDEN)


def evaluated(model: torch.nn.Module, call: Call) -> torch.Tensor | None:
    """Return the logits that a model gives."""
    return logits_of(run(model, call))


def run(model: Callable[..., Any], call: Call) -> Any:
    """Call a model."""
    by_place = [value for name, value in call.items() if isinstance(name, int)]
    return model(*by_place, **{name: value for name, value in call.items() if isinstance(name, str)})


def tokens(call: Call) -> torch.Tensor | None:
    """Return the token ids, `[rows, positions]`; None of what has none."""
    first = next((one for one in call.values() if isinstance(one, torch.Tensor)), None)
    ids = call.get("input_ids", first)
    plain = isinstance(ids, torch.Tensor) and ids.dim() == 2 and ids.shape[1] > 1 and ids.dtype in INTEGERS
    return ids if plain else None


def logits_of(output: Any) -> torch.Tensor | None:
    """Return the logits of what a model returned, else its first tensor of two dimensions and more."""
    output = getattr(output, "logits", output)
    if isinstance(output, Mapping):
        output = [output.get("logits"), *output.values()]
    found = output if isinstance(output, (tuple, list)) else (output,)
    many = (one for one in found if isinstance(one, torch.Tensor) and one.dim() > 1 and one.is_floating_point())
    return next(many, None)


def targets(
    model: torch.nn.Module, call: Call, logits: torch.Tensor, causal: bool | None = None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return logits `[places, classes]` and the target of each place, `-100` where none; None without labels.

    Labels that are the tokens are those of the place before, unless the model is known to look ahead; where only some
    are, nobody can say before that is known. What comes second is labels where it is called so, or may be left out.
    """
    ids = tokens(call)
    given: Any = next((call[name] for name in LABELS if isinstance(call.get(name), torch.Tensor)), None)
    if given is None and 1 in call:
        second = [*inspect.signature(model.forward).parameters.values()][1:2]
        given = call[1] if all(one.name in LABELS or one.default is None for one in second) else None
    if not isinstance(given, torch.Tensor) or given.dtype not in INTEGERS or given.shape != logits.shape[:-1]:
        return None
    given = given.where(given >= 0, IGNORED)  # -1 of some scripts, too: below 0, a label is ignored or ends the pass
    counted = given != IGNORED
    plain = given.dim() == 2 and ids is not None and ids.shape == given.shape and bool(counted.any())
    same = float((given == ids)[counted].float().mean()) if plain else 0.0
    if causal is None and SOME < same < 1:
        return None
    if causal is not False and same > SOME:
        logits, given = logits[:, :-1], given[:, 1:]
    rows, flat = logits.flatten(0, -2), given.flatten()
    return (rows, flat) if len(flat) and int(flat.amax()) < rows.shape[-1] else None
