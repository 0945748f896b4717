"""What long, padded and decoded inputs cost beside short ones, in one run.

    python benchmarks/forward_reach.py > benchmarks/forward_reach.md

A Qwen2 of 8 layers and 34 M parameters, drawn weights, float32, one thread; CPU time, the least of three. A candidate
that attends by sdpa as the reference does has its bits, one that attends eagerly has others.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import time
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


def rows() -> Iterator[str]:
    """Yield a row for each form of the inputs and each candidate."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(**SIZE, **MORE)
    made = transformers.Qwen2ForCausalLM(config).eval()
    eager = copy.deepcopy(made, {id(weight): weight for weight in made.parameters()})
    eager.config._attn_implementation = "eager"  # noqa: SLF001 -- no other way
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
        for row in rows():
            print(row, flush=True)
        print(PER_FAMILY)
        for row in reached(root):
            print(row, flush=True)


if __name__ == "__main__":
    main()
