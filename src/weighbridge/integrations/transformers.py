"""A callback for the Trainer of Transformers: `Trainer(..., callbacks=[Callback("runs/a")])`."""

import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from transformers import Trainer, TrainerCallback

from weighbridge.integrations.micro_batches import Recording, quietly, while_open


class Callback(Recording, TrainerCallback):  # type: ignore[misc,unused-ignore]  # its library is not looked into
    """Record a training under the Trainer, with the options of `weighbridge.recorder.Recorder`.

    The loss is what its training steps went backward from, added up over the micro-batches of an update: each is
    divided already, by the targets of the update or the number of its micro-batches.
    """

    @quietly
    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Open the run; a Trainer gives its callbacks all but itself."""
        callers = (frame.f_locals.get("self") for frame, _ in traceback.walk_stack(None))
        if (trainer := next((one for one in callers if isinstance(one, Trainer)), None)) is None:
            raise RuntimeError("no Trainer of Transformers calls this callback")
        facts = {"requested_steps": state.max_steps, "first_step": state.global_step}
        facts |= {"vocab": getattr(getattr(given["model"], "config", None), "vocab_size", None)}
        facts |= {"loader": given["train_dataloader"], "requested_device": "cpu" if args.use_cpu else "auto"}
        self.begin(given["model"], given["optimizer"], float(state.epoch or 0), **facts)
        self.around(trainer, "training_step", self._training_step)
        self.around(trainer.accelerator, "clip_grad_norm_", self._clip)

    def _training_step(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        recorder = self.recorder
        recorder.training_batch(args[1] if len(args) > 1 else kwargs.get("inputs"))
        try:
            loss = method(*args, **kwargs)
        except BaseException as problem:  # the Trainer tells no callback of it
            self.finish(type(problem))
            raise
        recorder.micro_loss(loss)
        recorder.update.parts = 1
        return loss

    def _clip(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.recorder.update.norm = norm = method(*args, **kwargs)
        return norm

    @while_open
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let the next batch begin a pass over the corpus."""
        self.recorder.next_pass(dry=not control.should_epoch_stop)

    @while_open
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write a row, or let it wait for its evaluation."""
        self.recorder.updated(waits=args.eval_strategy != "no")

    @while_open
    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any], **_: Any) -> None:
        """Put the numbers of an evaluation into the row: `eval_loss` as `val_loss`."""
        timed = ("runtime", "_per_second", "_time")
        numbers = {name: value for name, value in metrics.items() if isinstance(value, Real)}
        names = [name for name in numbers if name.startswith("eval_") and not name.endswith(timed)]
        self.recorder.update.scalars |= {f"val_{name.removeprefix('eval_')}": numbers[name] for name in names}
