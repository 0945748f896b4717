"""What went into an update: the learning rate, gradients as they arrived and as they were used, and updates."""

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import SELDOM, Cell, Channel, Watched, is_early, stamps
from weighbridge.recorder.learning.tensor_norms import gradient_norms, here, norms, samples, stacked

LAYOUT, PLAIN = operator.attrgetter("layout"), (torch.Tensor, torch.float32)
FAINT = 1e-9  # of the largest norm: what is below is noise of rounding
MOST_NODES = 1000  # of a graph that are gone through: a weight is made in a few
MOST_COPIED = 2**26  # bytes of weights: more are not copied


def unwrapped(optimizer: Any) -> Any:
    """Return the optimizer inside what Accelerate, Lightning and the like have put around it."""
    wrappers = dict[int, Any]()
    while hasattr(inner := getattr(optimizer, "optimizer", None), "param_groups") and id(inner) not in wrappers:
        wrappers[id(optimizer)], optimizer = optimizer, inner
    return optimizer


class Hyperparameters(Channel):
    """The learning rate of the first parameter group and the largest weight decay, as used, and how often in a step."""

    columns = ("lr", "weight_decay", "updates")
    every_step = True

    def update_ended(self) -> None:
        """Read them before a schedule moves them."""
        self._look()
        self.found["updates"] = float(self.found.get("updates") or 0) + 1

    def row(self) -> Mapping[str, Cell]:
        """Return them; of a step without an update, what they are."""
        if not self.found:
            self._look()
        if self.watched.optimizer is not None and not self.watched.compiled:
            self.found.setdefault("updates", 0.0)
        return super().row()

    def _look(self) -> None:
        if groups := getattr(self.watched.optimizer, "param_groups", None):
            self.found["lr"] = float(groups[0]["lr"])
            if decays := [float(group["weight_decay"]) for group in groups if "weight_decay" in group]:
                self.found["weight_decay"] = max(decays)


class Norms(Channel):
    """The 2-norm of all gradients after the last backward pass of a step, and as the update left them."""

    columns = ("grad_norm", "grad_norm_used", "gradients_finite")
    every_step = True

    _arrived: torch.Tensor | None = None
    _used: torch.Tensor | None = None
    _stamps: list[tuple[int, int]] | None = None

    def backward_ended(self) -> None:
        """Measure the norm as it arrived."""
        gradients = self.watched.gradients()
        self._arrived, self._stamps = self._norm(gradients), stamps(gradients)

    def update_ended(self) -> None:
        """Measure the norm that was used, after an update's closure; where no gradient was written to, it is the same.

        Torch counts what is written to a tensor, but not all of it (`.data`, under an audit): now and then it is taken.
        """
        gradients, scale = self.watched.gradients(), self.watched.scale
        counted = self._arrived is not None and scale is None and not self.watched.early
        same = counted and stamps(gradients) == self._stamps
        self._used = self._arrived if same else self._norm(gradients)
        if scale is not None and self._arrived is not None:
            self._arrived = self._arrived / scale.to(self._arrived.device)

    def row(self) -> Mapping[str, Cell]:
        """Return both; of a step in which the optimizer made no update, whether the gradients were finite."""
        arrived, used = self._arrived, self._used
        self._arrived = self._used = None
        if used is None and self.watched.compiled:
            used = self._norm(self.watched.gradients())
        if used is None and self.watched.optimizer is None:  # a script that updates by hand: nobody knows when
            return {} if arrived is None else {"grad_norm": arrived}
        if used is None:
            return {"gradients_finite": None if arrived is None else torch.isfinite(arrived)}
        return {"grad_norm": used if arrived is None else arrived, "grad_norm_used": used}

    def _norm(self, gradients: list[torch.Tensor]) -> torch.Tensor | None:
        if not gradients:
            return None
        strided = {*map(LAYOUT, gradients)} == {torch.strided}
        dense = gradients if strided else [one.coalesce().values() if one.is_sparse else one for one in gradients]
        found = stacked(torch._foreach_norm(dense))  # noqa: SLF001 -- as clip_grad_norm_
        if strided and self.watched.early and {(type(one), one.dtype) for one in dense} == {PLAIN}:
            self.watched.norms = found  # of others, what `gradient_norms` says is wider, or of a part
        norm: torch.Tensor = torch.linalg.vector_norm(found)
        return norm


class StepCounters(Channel):
    """By how many updates the counters of an optimizer's state lag, at most; each began where it was found.

    An optimizer that has state and no counters (momentum) lags by all updates where a tensor's state is gone.
    """

    columns = ("step_counter_lag",)
    every_step = True

    _updates = 0
    _stateful = 0  # tensors that had state when this looked last
    _lost = 0  # updates, when some had none any more
    _blind = False  # an update ran that was not counted, or that may have been called off unseen

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._ahead: dict[int, Any] = {}  # of each tensor's counter before that of the updates

    def update_begins(self) -> None:
        """Count the update for each tensor that has a gradient."""
        self._blind |= self.watched.scale is not None and hasattr(self.watched.optimizer, "_step_supports_amp_scaling")
        owned = self.watched.owned()
        if len(owned) != len(self._ahead):
            for one in owned:
                if id(one) not in self._ahead:
                    self._ahead[id(one)] = self._counter(one, 0) - self._updates
        if self.watched.early and self._count() < self._stateful:
            self._lost = self._updates
        self._updates += 1
        for one in owned:
            if one.grad is None:
                self._ahead[id(one)] -= 1

    def row(self) -> Mapping[str, Cell]:
        """Compare now and then; an optimizer without counters has nothing to compare."""
        self._blind |= self.watched.compiled
        if self._blind or not self.watched.early or not is_early(self.watched.step, SELDOM):
            return {}
        counters = ((id(one), self._counter(one, None)) for one in self.watched.owned())
        lags = [self._ahead[one] + self._updates - at for one, at in counters if at is not None and one in self._ahead]
        stateful, self._stateful, lost, self._lost = self._stateful, self._count(), self._lost, 0
        if not lags:
            return {"step_counter_lag": float(lost)} if stateful or self._stateful else {}
        if not (apart := [one for one in lags if isinstance(one, torch.Tensor)]):
            return {"step_counter_lag": float(max(lags))}
        together = [torch.as_tensor(one, device=apart[0].device, dtype=torch.float32) for one in lags]
        return {"step_counter_lag": torch.stack(together).max()}

    def _count(self) -> int:
        state = getattr(self.watched.optimizer, "state", {})
        return sum(bool(state.get(one)) for one in self.watched.owned())

    def _counter(self, parameter: torch.Tensor, default: Any) -> Any:
        """Return the counter: of the host as a number, of a device as a copy that nobody waits for."""
        found = getattr(self.watched.optimizer, "state", {}).get(parameter, {}).get("step", default)
        if not isinstance(found, torch.Tensor):
            return found
        return found.item() if found.device.type == "cpu" else found.detach().clone()


class EditedGradients(Channel):
    """How unevenly norms were scaled (clipping is even), the least cosine of samples, and how many have no gradient."""

    columns = ("gradient_edit_ratio", "gradient_cosine", "zero_gradients")

    _arrived: tuple[list[int], torch.Tensor, torch.Tensor] | None = None  # tensors, norms, samples

    def backward_ended(self) -> None:
        """Keep what arrived."""
        self._arrived = self._now()

    def update_ended(self) -> None:
        """Compare it with what was used, where that is of the same tensors."""
        before, after = self._arrived, self._now()
        self._arrived = None
        trained = {id(one) for one in self.watched.trained()}
        self.found = {"zero_gradients": float(len(trained))}
        if after is not None:
            given = after[1] != 0
            counted = given if trained.issuperset(after[0]) else given[[one in trained for one in after[0]]]
            self.found = {"zero_gradients": len(trained) - counted.sum()}
        if before is None or after is None or before[0] != after[0]:
            return
        (_, arrived, was), (_, used, now) = before, after
        if used.is_cpu and torch.equal(arrived, used) and torch.equal(was, now) and was.any():
            self.found |= {"gradient_edit_ratio": 1.0, "gradient_cosine": 1.0}
            return
        seen = arrived > FAINT * arrived.max()
        by_tensor = used / arrived
        largest, least = (by_tensor.where(seen, -torch.inf).max(), by_tensor.where(seen, torch.inf).min())
        one, other = (rows / rows.abs().amax(1, keepdim=True) for rows in (was, now))  # in range
        cosines = torch.nn.functional.cosine_similarity(one, other, eps=1e-12)
        known = seen & (was != 0).any(1) & (used != 0)
        self.found["gradient_edit_ratio"] = largest / least
        self.found["gradient_cosine"] = torch.where(known.any(), cosines.where(known, torch.inf).min(), torch.nan)

    def row(self) -> Mapping[str, Cell]:
        """Return what the update was found to use."""
        self._arrived = None
        return super().row()

    def _now(self) -> tuple[list[int], torch.Tensor, torch.Tensor] | None:
        ids = [id(one) for one in self.watched.parameters() if one.grad is not None]
        gradients = self.watched.gradients()
        return (ids, gradient_norms(self.watched, gradients), samples(here(gradients))) if ids else None


class StaleGradients(Channel):
    """How many tensors had a gradient left of the step before when the first of this one arrived."""

    columns = ("stale_gradients",)
    _left: tuple[torch.Tensor, ...] = ()  # kept, so that no other tensor takes the place of one

    def forward_ended(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: torch.Tensor) -> None:
        """Note what there is: a pass may reach another output first, whose gradients are new, or written to."""
        self._left = tuple(self.watched.gradients())
        self._stamps = {*stamps(self._left)}

    def backward_begins(self, gradient: torch.Tensor) -> None:
        """Count them in the first pass of a step."""
        if not self.found:
            gradients = self.watched.gradients()
            left = torch.tensor([stamp in self._stamps for stamp in stamps(gradients)], dtype=torch.bool)
            held = gradient_norms(self.watched, gradients)[left] if gradients else left
            self.found["stale_gradients"] = (held != 0).sum()
        self._left = ()


class Ownership(Channel):
    """How many tensors that are trained no optimizer holds, and how many are not trained.

    A module may train what it has not registered: a parameter in a plain list, or one that was moved after it was made.
    """

    columns = ("unowned", "frozen")
    _unregistered: tuple[torch.Tensor, ...] | None = None

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Find what is not registered, before modules keep what a pass makes."""
        if self._unregistered is None:
            own = {id(one): one for module in self.watched.model.modules() for one in _leaves(vars(module))}
            for one in self.watched.parameters():
                own.pop(id(one), None)
            self._unregistered = tuple(own.values())

    def row(self) -> Mapping[str, Cell]:
        """Count them; an optimizer of copies in float32 holds none of a narrow model's own."""
        parameters = self.watched.parameters()
        training = [one for one in parameters if one.requires_grad]
        found: dict[str, Cell] = {"frozen": float(len(parameters) - len(training))}
        if self.watched.optimizer is not None:
            owned = {id(one) for one in self.watched.owned()}
            unowned = sum(id(one) not in owned for one in training)
            missed = sum(one.grad is not None and id(one) not in owned for one in self._unregistered or ())
            if unowned < len(training) or all(one.element_size() >= 4 for one in training):
                found["unowned"] = float(unowned + missed)
        return found


def _leaves(attributes: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors with a gradient that attributes of a module are, hold in a list or mapping, or were made of."""
    for kept in attributes.values():
        several = kept.values() if isinstance(kept, Mapping) else kept if isinstance(kept, (list, tuple)) else [kept]
        for one in several:
            if isinstance(one, torch.nn.Module) and kept is not attributes.get("_modules"):
                yield from one.parameters()
            elif isinstance(one, torch.Tensor) and one.requires_grad:
                yield from [one] if one.is_leaf else _made_of(one)


def _made_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    waiting, seen = [tensor.grad_fn], set[Any]()
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [before for before, _ in node.next_functions]
        if hasattr(node, "variable"):
            yield node.variable


class Layers(Channel):
    """A row for each tensor that is trained, at the default cadence even where all else is looked at in every step."""

    columns = ("layers",)

    def __init__(self, watched: Watched, every: int) -> None:
        super().__init__(watched)
        self.period = every
        self._norms: dict[str, tuple[list[int], torch.Tensor]] = {}
        self._copies: tuple[list[int], list[torch.Tensor]] | None = None
        self.rows: list[dict[str, Any]] = []  # that are yet to be written

    def backward_ended(self) -> None:
        """Measure the gradients as they arrived."""
        self._take("grad", graded=True)

    def update_begins(self) -> None:
        """Copy the weights of a small model."""
        weights = self.watched.trained()
        if sum(one.numel() * one.element_size() for one in weights) <= MOST_COPIED:
            self._copies = [id(one) for one in weights], [one.clone() for one in here(weights)]

    def update_ended(self) -> None:
        """Measure the gradients as they were used, the weights, and by how much they moved."""
        self._take("grad_used", graded=True)
        self._take("weight", graded=False)
        ids, copies = self._copies or ([], [])
        if ids and ids == self._norms["weight"][0]:
            torch._foreach_sub_(copies, here(self.watched.trained()))
            self._norms["update"] = ids, norms(copies)
        self._copies = None
        if (scale := self.watched.scale) is not None and (arrived := self._norms.get("grad")) is not None:
            self._norms["grad"] = arrived[0], arrived[1] / scale.to(arrived[1].device)

    def row(self) -> dict[str, Cell]:
        """Bring all to the host at once; of a step without an update there is no row."""
        found, self._norms, self._copies = self._norms, {}, None
        if "weight" not in found:
            return {}
        together = iter(torch.cat([one.float() for _, one in found.values()]).tolist())
        by_tensor: dict[int, dict[str, float]] = {}
        for name, (ids, _) in found.items():
            for one in ids:
                by_tensor.setdefault(one, {})[name] = next(together)
        names = ((name, by_tensor.get(id(one))) for name, one in self.watched.model.named_parameters())
        self.rows = [{"step": self.watched.step, "name": name, **given} for name, given in names if given]
        return {}

    def _take(self, name: str, *, graded: bool) -> None:
        owners = [one for one in self.watched.trained() if not graded or one.grad is not None]
        tensors = [one.grad if graded else one for one in owners]
        if owners:
            self._norms[name] = [id(one) for one in owners], norms(here(one for one in tensors if one is not None))
