"""What goes on inside a model, every so many steps: of a batch that stays the same, and of classes of what is learnt.

The batch is evaluated on a copy that shares the parameters and nothing else, before the step's first pass.
"""

import contextlib
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from weighbridge.diagnosis import looking
from weighbridge.diagnosis.activations import Activation, Place, outliers
from weighbridge.diagnosis.attention_maps import AttentionMap, content, heads, redundant
from weighbridge.diagnosis.finite_differences import differences
from weighbridge.diagnosis.fixed_batch import IGNORED, Call, call_of, cut, logits_of, run, targets, tokens
from weighbridge.diagnosis.matrices import PowerIteration, alignment, commonest, embedding
from weighbridge.quantities.runs import INSIDE
from weighbridge.recorder import residency
from weighbridge.recorder.channels import Cell, Channel, Watched
from weighbridge.recorder.learning.tensor_norms import DENSE
from weighbridge.recorder.passes.probes import copied, random_numbers_kept

ROWS, POSITIONS = 4, 64
CHECKS = 3  # in which a unit must have been dead
FEWEST = 3  # blocks of a stack, of fewer none is outside its band
LARGEST = 99.0  # loss whose exponential is written
HARDLY = 0.1  # of their norm: what rows of an embedding have to move for their arrangement to tell anything
MOST_DRAWN = 2**28  # bytes of weights that are put in another order
INSIDE_HEADS = INSIDE[6:13]
HEADS = ("name", "largest_logit", "entropy", "largest", "first", "previous", "collapsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """What is looked at inside a model.

    every: how many steps lie between two looks; the first step is one of them, and the last one that was asked for.
    batch: what is looked at each time, as the model is called with it: a mapping by name, a tuple by place. Left out,
        the first four rows of what goes into the first step, up to 64 positions of them.
    classes: gives the class of each row, or of each place, of what goes into the model: a tensor of integers, 0 for
        the regular one. It is called with the model's one argument, its arguments by place, or those by name.
    gradients: whether gradients are compared with differences of the loss, before the first step.
    """

    every: int = 50
    batch: Any = None
    classes: Callable[[Any], torch.Tensor] | None = None
    gradients: bool = False


class OneLook:
    """The batch that stays the same, evaluated on a copy of the model: once in a step, however many want to see it."""

    def __init__(self, watched: Watched, batch: Any = None) -> None:
        self._watched, self._kept, self._step = watched, batch is not None, -1
        self.call = cut(call_of(batch)) if self._kept else None
        self._found: tuple[torch.nn.Module, looking.Look] | None = None

    def keep(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep the first batch that goes into the model, unless another one was asked for."""
        if not self._kept:
            call: Call = {**dict(enumerate(args)), **kwargs}
            self._kept, self.call = True, cut(call, ROWS, POSITIONS) or cut(call)

    def __call__(self) -> tuple[torch.nn.Module, looking.Look] | None:
        """Return the copy, and what is seen of the batch in the step under way; None where it cannot be evaluated."""
        if self._step != self._watched.step:
            self._step, self._found, call = self._watched.step, None, self.call
            if call is not None and (model := copied(self._watched)) is not None:
                with undisturbed(model):
                    self._found = model, looking.look(model, call, self._watched.causal)
        return self._found

    @property
    def lacking(self) -> str:
        """Return why nothing could be seen."""
        batch = "the batch is not of tensors alone" if self._kept else "no forward pass of the model was seen"
        return batch if self.call is None else "a copy of the model cannot be evaluated"


@contextlib.contextmanager
def undisturbed(model: torch.nn.Module) -> Iterator[None]:
    """Evaluate inside the block with the precision of the loop, and give random numbers back."""
    kind = next((one.device.type for one in model.parameters()), "cpu")
    dtype, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
    with random_numbers_kept(), torch.autocast(kind, dtype, enabled, cache_enabled=False):
        yield


class Looking(Channel):
    """What both have: when it is due, rows for `diagnostics.jsonl`, and why nothing could be seen."""

    every_step = True

    def __init__(self, watched: Watched, asked: Diagnostics, last: int | None, looks: OneLook) -> None:
        super().__init__(watched)
        self.asked, self.last, self.looks = asked, last, looks
        self.rows: list[dict[str, Any]] = []
        self.unseen = ""

    @property
    def due(self) -> bool:
        """Return whether the step under way is looked at."""
        return self.watched.step % max(self.asked.every, 1) == 0 or self.watched.step == self.last


class Inside(Looking):
    """Figures of the batch that stays the same; against the first look where they say so."""

    columns = INSIDE[:-3]
    _common: tuple[torch.Tensor, torch.Tensor] | None = None
    _control: float | None = None
    _looks = 0
    _looked = _gone = False  # in this step; for good

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._first: dict[str, Activation] = {}
        self._dead: dict[str, torch.Tensor] = {}  # in how many looks on end each unit was
        self._matrices = PowerIteration()

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look before the first pass of a step that is due."""
        if not self.due or self._looked:
            return
        self._looked = True
        self.looks.keep(args, kwargs)
        found, call = self.looks(), self.looks.call
        if found is None or call is None:
            self._give_up()
            return
        (model, seen), causal = found, self.watched.causal
        self._remember(call)
        with undisturbed(model):
            other = looking.shuffled(call) if seen.attention else None
            elsewhere = looking.attention(model, other) if other is not None else ()
            if self._control is None and seen.loss is not None:
                self._control = looking.loss_of(model, call, of_chance(model, call), causal)
        self.found = self._activations(seen.activations) | self._attention(seen.attention, elsewhere)
        self.found |= self._weights(model)
        if seen.loss is not None:
            self.found["slice_ppl"] = math.exp(min(seen.loss, LARGEST))
            self.found["logits_gain"] = None if self._control is None else self._control - seen.loss
        if not seen.attention:
            self.rows.append({"of": "attention", "why": "; ".join(seen.lacking[:3]) or "no layer was seen"})

    def row(self) -> Mapping[str, Cell]:
        """Return what was seen; of a step that no pass of the model was seen in, say so."""
        if self.due and not self._looked:
            self._give_up()
        self._looked = self._gone
        return super().row()

    def _give_up(self) -> None:
        self._gone = self._looked = True
        self.unseen = residency.compiled(self.watched.model) or self.looks.lacking

    def _remember(self, call: Call) -> None:
        """Keep the commonest tokens of the batch as they are embedded at the first look."""
        self._looks += 1
        ids, table = tokens(call), embedding(self.watched.bare())
        common = None if ids is None or self._looks > 1 else commonest(ids)
        if table is not None and common is not None and int(common.amax()) < len(table):
            self._common = common, table.detach()[common.to(table.device)].clone()

    def _activations(self, seen: tuple[Activation, ...]) -> dict[str, Cell]:
        names = [one.name for one in fields(Activation) if one.name not in ("peaks", "stack")]
        self.rows += [{"of": "activation", **{name: getattr(one, name) for name in names}} for one in seen]
        first = self._first = self._first or {one.name + one.place: one for one in seen}
        found: dict[str, Cell] = {}
        broken = any(one.not_finite for one in seen)  # of the rest no figure tells how large it is
        if seen:
            found["activation_absmax"] = math.nan if broken else max(one.absmax for one in seen)
            found["activations_not_finite"] = float(sum(one.not_finite for one in seen))
        blocks = [one for one in seen if one.place is Place.BLOCK]
        listed = (one for one in blocks if one.name.rpartition(".")[2].isdecimal())  # others grow by rights, as a head
        if ratios := [one.std / was.std for one in listed if (was := first.get(one.name + one.place)) and was.std]:
            found["activation_std_ratio"] = math.nan if broken else max(ratios)
        stacks = (list(some) for _, some in itertools.groupby(blocks, key=lambda one: one.stack))
        began = self.watched.step == 0  # where a block may add nothing yet
        many = (some for some in stacks if len(some) >= FEWEST)
        added = ({one.name: one.added for one in some if one.added or not began} for some in many)
        if known := [value for of_stack in added for value in outliers(of_stack).values()]:
            found["activation_outlier"] = max(known)
        return found | self._neurons([one for one in seen if one.place is Place.HIDDEN])

    def _neurons(self, hidden: list[Activation]) -> dict[str, Cell]:
        found: dict[str, Cell] = {}
        for one in {one.name: one for one in hidden}.values():  # once, where a block is called several times
            self._dead[one.name] = torch.where(one.dead, self._dead.get(one.name, 0) + 1, 0)
        if hidden and self._looks >= CHECKS:
            found["dead_neurons_share"] = float((torch.cat([*self._dead.values()]) >= CHECKS).float().mean())
        changes = sorted(
            abs(one.kurtosis - first.kurtosis) / math.sqrt(24 * len(one.peaks) / one.values)
            for one in hidden
            if (first := self._first.get(one.name + one.place)) is not None
        )
        if changes and self.watched.step:
            found["neuron_kurtosis_change"] = changes[len(changes) // 2]
        return found

    def _attention(self, maps: tuple[AttentionMap, ...], others: tuple[AttentionMap, ...]) -> dict[str, Cell]:
        self.rows += [{"of": "attention", **{name: getattr(one, name) for name in HEADS}} for one in maps]
        entropies, collapsed = heads(maps, lambda one: one.entropy), heads(maps, lambda one: one.collapsed)
        if not all(bool(one.weights.isfinite().all()) for one in maps):
            return dict.fromkeys(INSIDE_HEADS, math.nan)
        if not entropies:
            return {}
        return {
            "least_head_entropy": min(entropies),
            "head_entropy": statistics.fmean(entropies),
            "head_entropy_std": statistics.pstdev(entropies),
            "largest_logit": max(one.largest_logit for one in maps),
            "redundant_heads_share": redundant(maps),
            "head_content": content(maps, others),
            "dead_heads_share": sum(one > 0.99 for one in collapsed) / len(collapsed) if collapsed else None,
        }

    def _weights(self, model: torch.nn.Module) -> dict[str, Cell]:
        found, table = dict[str, Cell](), embedding(model)
        if self._common is not None and table is not None and self.watched.step:
            ids, before = self._common
            now = table[ids.to(table.device)]
            # Rows that hardly moved are aligned with what they were, whatever they learn; unmoved ones are not trained.
            if not 0 < float((now - before).norm()) < HARDLY * float(before.norm()):
                found["embedding_cka"] = alignment(before, now)
        matrices = [
            (name, one)
            for name, one in model.named_parameters()
            if type(one) in DENSE and one.dim() > 1 and one.requires_grad and one.is_floating_point()
        ]
        if norms := self._matrices.measure(matrices):
            self.rows += [
                {"of": "matrix", "name": one.name, "spectral_norm": one.value, "residual": one.residual}
                for one in norms
                if one.known
            ]
            top = max(norms, key=lambda one: math.inf if math.isnan(one.value) else one.value)
            found["spectral_norm"] = top.value if top.known or math.isnan(top.value) else None
        return found


class GradientCheck(Looking):
    """By how much the gradient of the batch parts from central differences of its loss, before the first update."""

    columns = INSIDE[-1:]

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look once, on a copy in float64; of a model beyond 256 MiB there is none."""
        if not self.asked.gradients or self.watched.step or self.found:
            return
        self.looks.keep(args, kwargs)
        if (seen := self.looks()) is not None and self.looks.call is not None and _small(seen[0]):
            with random_numbers_kept(), torch.autocast(next(seen[0].parameters()).device.type, enabled=False):
                every = differences(seen[0], self.looks.call)
            self.rows += [{"of": "gradient", **one._asdict()} for one in every]
            errors = [one.error for one in every]
            self.found = {"gradient_error": math.nan if any(map(math.isnan, errors)) else max(errors, default=None)}


class ClassLosses(Looking):
    """The loss of a step in float64, from its logits and labels; and by class, where somebody says what these are."""

    columns = INSIDE[-3:-1]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._passes: list[float | None] = []  # of a pass without labels that count, no loss
        self._classes: dict[int, looking.Moments] = {}

    def forward_ended(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: torch.Tensor) -> None:
        """Take the losses of a pass; several ranks and several passes are averaged in ways that nobody can see."""
        if not self.due or output.dim() < 2:
            return
        given = targets(self.watched.bare(), {**dict(enumerate(args)), **kwargs}, output, self.watched.causal)
        if given is None:
            return
        found, labels = looking.losses(*given), given[1]
        taken = looking.moments(found[labels != IGNORED])
        # The Trainer says by how many the sum is divided: those of all labels, the first of each row among them.
        items = float(kwargs.get("num_items_in_batch") or taken.count)
        self._passes.append(taken.mean * taken.count / items if taken.count else None)
        if self.asked.classes is None:
            return
        classes = torch.as_tensor(self.asked.classes(kwargs if not args else args[0] if len(args) == 1 else args))
        if (spread := looking.spread_out(classes, labels)) is not None:
            for kind, of_class in looking.by_class(found, labels, spread).items():
                self._classes[kind] = self._classes.get(kind, looking.Moments()).merged(of_class)

    def row(self) -> Mapping[str, Cell]:
        """Return the loss, and by how much that of the class that lags most is above that of class 0."""
        passes, self._passes = self._passes, []
        classes, self._classes = {kind: one for kind, one in self._classes.items() if one.count}, {}
        alone = len(passes) == 1 and not (torch.distributed.is_available() and torch.distributed.is_initialized())
        for kind, one in sorted(classes.items()):
            self.rows.append({"of": "class", "name": str(kind), "count": one.count, "mean": one.mean, "std": one.std})
        others = [one.mean for kind, one in classes.items() if kind]
        return {
            "loss_float64": passes[0] if alone else None,
            "class_tax": max(others) - classes[0].mean if others and 0 in classes else None,
        }


LOOKING: tuple[type[Looking], ...] = (Inside, GradientCheck, ClassLosses)


def _small(model: torch.nn.Module) -> bool:
    return sum(one.numel() * one.element_size() for one in model.parameters()) <= MOST_DRAWN


def of_chance(model: torch.nn.Module, call: Call) -> torch.Tensor | None:
    """Return the logits of the same model with the entries of every matrix in another order."""
    if not _small(model):
        return None
    drawn = torch.Generator().manual_seed(0)
    mixed = {
        name: one.flatten()[torch.randperm(one.numel(), generator=drawn).to(one.device)].view_as(one)
        for name, one in model.named_parameters()
        if one.dim() > 1
    }
    return logits_of(run(lambda *given, **named: torch.func.functional_call(model, mixed, given, named), call))
