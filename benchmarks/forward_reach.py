"""What long, padded and decoded inputs cost beside short ones, in one run.

    python benchmarks/forward_reach.py > benchmarks/forward_reach.md

A Qwen2 of 8 layers and 34 M parameters, drawn weights, float32, one thread; CPU time, the least of three. A candidate
that attends by sdpa as the reference does has its bits, one that attends eagerly has others.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.forward_families import FAMILIES, judged, other, saved
from benchmarks.forward_parity import view

from weighbridge.core.model import Measurement
from weighbridge.forward.reach import DECODED, PADDED
from weighbridge.forward.stacks import DRAWN, Torch
from weighbridge.verifiers.forward_errors import VERIFIER
from weighbridge.views.model_view import open_model

SIZE = {"vocab_size": 8192, "hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8}
MORE = {"num_key_value_heads": 2, "intermediate_size": 1408, "max_position_embeddings": 2048, "pad_token_id": 0}
LONG = (2, 520)  # as drawn for a window of 512
ROUNDS = 3
FORMS = (
    ("as it is", DRAWN, False, 0),
    ("padded", DRAWN, True, 0),
    ("decoded", DRAWN, False, DECODED),
    ("padded and decoded", DRAWN, True, DECODED),
    ("as it is", LONG, False, 0),
    ("padded and decoded", LONG, True, DECODED),
)

TITLE = """# What inputs that reach more cost

Written by `python benchmarks/forward_reach.py`: a Qwen2 of 8 layers and 34 M parameters, drawn weights, float32, one
thread, CPU time, the least of {rounds}. One forward is of the same inputs as they are; "with its canary" is all that a
gate runs. 2 × 520 tokens are what is drawn for a window of 512. The last column is the whole beside that of the short
inputs as they are.

| inputs | form | candidate | one forward | measuring | with its canary | beside short ones |
|---|---|---|---|---|---|---|"""

PER_PASS = """
| 2 × 520, as it is: what runs | equal bits | another attention |
|---|---|---|"""
PASSES = {  # by what asks for one
    "noise": "a second run of the candidate, held against the first",
    "rough": "a run by rough kernels",
    "stepwise": "a run from the candidate's values",
    "local_errors": "a pass in float64 over what a run held",
    "end_to_end": "a pass in float64 with nothing replaced, of one sequence",
    "capture": "a run in float32, kept at each point",
}
PER_FAMILY = """
| what drawn inputs reach by default | families of `forward_families.py` |
|---|---|"""


def spent(run: Callable[[], object]) -> float:
    """Return the least CPU time of some runs."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


@contextlib.contextmanager
def counted() -> Iterator[dict[str, list[float]]]:
    """Note the CPU time of each pass that is made inside the block, by what asked for it."""
    found: dict[str, list[float]] = {name: [] for name in PASSES}
    forward = Torch.forward

    def timed(*given: Any, **named: Any) -> None:
        callers = {frame.f_code.co_name for frame, _ in traceback.walk_stack(None)}
        start = time.process_time()
        forward(*given, **named)
        found[next(name for name in PASSES if name in callers)].append(time.process_time() - start)

    Torch.forward = timed  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Torch.forward = forward  # type: ignore[method-assign]


def by_pass(made: Any, other: Any) -> Iterator[str]:
    """Yield a row for each kind of pass over long inputs: how many there are, and what they cost together."""
    tokens, columns = [[(37 * n + 11 * n * n + 101 * row) % 8000 + 2 for n in range(LONG[1])] for row in range(2)], []
    plain = spent(partial(made, input_ids=torch.tensor(tokens), use_cache=False))
    for module in (made, other):
        views = (view(Torch(module=made, tokens=tokens)), view(Torch(module=module, tokens=tokens, dtype="float32")))
        with counted() as found:
            start = time.process_time()
            VERIFIER.measure(views, {})
            whole = time.process_time() - start
        columns.append((found, whole))
    for name, what in PASSES.items():
        cells = [f"{len(one[name])}: × {sum(one[name]) / plain:.1f}" if one[name] else "0" for one, _ in columns]
        yield f"| {what} | {' | '.join(cells)} |"
    rest = [f"× {(whole - sum(map(sum, one.values()))) / plain:.1f}" for one, whole in columns]
    yield f"| digests, equal bits, logits | {' | '.join(rest)} |"


def models() -> tuple[Any, Any]:
    """Return a model, and the same with another attention."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(**SIZE, **MORE)
    made = transformers.Qwen2ForCausalLM(config).eval()
    eager = copy.deepcopy(made, {id(weight): weight for weight in made.parameters()})
    eager.config._attn_implementation = "eager"  # noqa: SLF001 -- no other way
    return made, eager


def rows(made: Any, eager: Any) -> Iterator[str]:
    """Yield a row for each form of the inputs and each candidate."""
    first: dict[str, float] = {}
    for form, (many, length), padded, decode in FORMS:
        tokens = [[(37 * n + 11 * n * n + 101 * row) % 8000 + 2 for n in range(length)] for row in range(many)]
        plain = spent(partial(made, input_ids=torch.tensor(tokens), use_cache=False))
        pads = (*[0] * (many - 1), PADDED) if padded else ()
        for name, module in (("equal bits", made), ("another attention", eager)):
            measuring, whole = [], []
            for _ in range(ROUNDS):
                views = (
                    view(Torch(module=made, tokens=tokens)),
                    view(Torch(module=module, tokens=tokens, padded=pads, decode=decode, dtype="float32")),
                )
                start = time.process_time()
                found = VERIFIER.measure(views, {})
                measuring.append(time.process_time() - start)
                assert isinstance(found, Measurement), found
                canary: Any = VERIFIER.canary(views, {}, found)
                start = time.process_time()
                assert canary.seen(VERIFIER.measure(canary.views, {}))
                whole.append(measuring[-1] + time.process_time() - start)
            first.setdefault(name, min(whole))
            yield (
                f"| {many} × {length} | {form} | {name} | {plain:.2f} s | × {min(measuring) / plain:.1f} | "
                f"× {min(whole) / plain:.1f} | × {min(whole) / first[name]:.2f} |"
            )


def reached(root: str) -> Iterator[str]:
    """Yield what is reached by default, and in which families."""
    found: dict[str, list[str]] = {}
    for family in FAMILIES:
        folder = saved(family, root)
        verdict = judged(folder, open_model(other(folder, family, "float32")))
        missed = [name for name in ("cache", "padding") if name in verdict.figures["not_reached"]]  # type: ignore[operator]
        found.setdefault(", ".join(missed), []).append(family if verdict.outcome.name == "PASS" else f"{family} (!)")
    for missed_names, families in sorted(found.items()):
        yield f"| {'all but: ' + missed_names if missed_names else 'all that there is'} | {', '.join(families)} |"


def main() -> None:
    """Print the page."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(TITLE.format(rounds=ROUNDS))
    with torch.no_grad(), tempfile.TemporaryDirectory() as root:
        pair = models()
        for row in rows(*pair):
            print(row, flush=True)
        print(PER_PASS)
        for row in by_pass(*pair):
            print(row, flush=True)
        print(PER_FAMILY)
        for row in reached(root):
            print(row, flush=True)


if __name__ == "__main__":
    main()
