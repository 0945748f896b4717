"""How often `forward-parity` is right: bugs, harmless kernels and captures of another state on small models.

    python benchmarks/forward_parity.py [--seeds 2] [--dtypes bfloat16 float16 float32]
        [--only bugs harmless states outliers families decode costs] [--saved DIR] [--go-on FILE]

Every run is measured and judged by the gate's own verifier and judge; the canary, the trials and the seal are left out.
"""

from __future__ import annotations

import argparse
import copy
import math
import resource
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.forward_damages import Taken, bugs, states
from benchmarks.forward_families import try_decode, try_families, try_saved
from benchmarks.forward_models import FAMILIES, KERNELS, LAYERS, TOKENS, Site, kernels, model

from weighbridge.core import data
from weighbridge.core.model import Measurement, Outcome, Verdict
from weighbridge.forward.stacks import Torch
from weighbridge.gates.families.local_errors import Limits
from weighbridge.gates.forward_parity import judge
from weighbridge.verifiers.forward_errors import VERIFIER
from weighbridge.views.model_view import ModelView

LIMITS = Limits(other_weights=("*",))  # so that what differs in a weight is found where it is used
DTYPES = ("bfloat16", "float16", "float32")

# --- Runs -------------------------------------------------------------------------------------------------------------


def view(stack: Any) -> ModelView:
    """Return a model view of a stack that is there already."""
    return ModelView(spec="benchmark", source=SimpleNamespace(make=lambda: stack))


REFERENCES: dict[Any, ModelView] = {}
SEEN: dict[str, str] = {}  # what bugs came out as in an earlier run, by case
NOTED: list[Path] = []  # the file that they are noted in, where one is asked for


def note(case: str, what: str) -> None:
    """Write down what a case came out as, so that a run that was cut off goes on there."""
    for path in NOTED:
        with path.open("a") as file:
            file.write(f"{case}\t{what}\n")


def judged(family: str, dtype: str, seed: int, kind: str, candidate: Torch) -> Verdict:
    """Return the verdict on a candidate, against the model unchanged."""
    key = (family, dtype, seed, kind)
    if key not in REFERENCES:
        REFERENCES.clear()
        REFERENCES[key] = view(Torch(module=model(family, seed, kind), tokens=TOKENS))
    found = VERIFIER.measure((REFERENCES[key], view(candidate)), {})
    assert isinstance(found, Measurement), found
    return judge({"points": found}, LIMITS)


def table(title: str, columns: tuple[str, ...], counts: Mapping[tuple[str, str], Counter[str]]) -> None:
    """Print counts by row and column."""
    print(f"\n{title}\n{'':44}" + "".join(f"{column:>26}" for column in columns))
    for row in dict.fromkeys(row for row, _ in counts):
        cells = (" ".join(f"{n} {what}" for what, n in sorted(counts[row, column].items())) for column in columns)
        print(f"{row:44}" + "".join(f"{cell:>26}" for cell in cells))
    for column in columns:
        whole = sum((found for (_, of), found in counts.items() if of == column), Counter())
        print(f"  {column}: {dict(whole)}")
    sys.stdout.flush()


@torch.no_grad()
def try_bugs(seeds: int, dtypes: tuple[str, ...]) -> None:
    """Bring each bug into each layer in each dtype."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for seed in range(seeds):
        for family in FAMILIES:
            for layer in range(LAYERS):
                for dtype in dtypes:
                    for at, _ in enumerate(bugs(Site(model(family, seed), family, layer))):
                        made = kernels(model(family, seed), attends="softmax in float32")
                        name, bring, place = list(bugs(Site(made, family, layer)))[at]
                        case = f"{seed} {family} {layer} {dtype} {name}"
                        if case in SEEN:
                            counts[name, dtype][SEEN[case]] += 1
                            continue
                        bring()
                        verdict = judged(family, dtype, seed, "drawn", Torch(module=made, tokens=TOKENS, dtype=dtype))
                        first = verdict.figures.get("first")
                        what = {Outcome.PASS: "missed", Outcome.FAIL: "found" if first == place else "elsewhere"}.get(
                            verdict.outcome, verdict.code
                        )
                        counts[name, dtype][what] += 1
                        note(case, what)
                        if what not in ("found", "missed"):
                            print(f"  {family} {dtype} {layer} {name}: {what}, {first}, not {place}", flush=True)
                print(f"  {family} layer {layer}: {dict(sum(counts.values(), Counter()))}", flush=True)
        table(f"Bugs up to seed {seed}", dtypes, counts)


@torch.no_grad()
def try_harmless(seeds: int, dtypes: tuple[str, ...], kind: str = "drawn") -> None:
    """Run each kernel in each dtype; no alarm is right."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    most: dict[str, tuple[float, str]] = {}
    for seed in range(10, 10 + seeds):
        for family in FAMILIES:
            for dtype in dtypes:
                for name, change in KERNELS.items():
                    if family == "gpt2" and name == "rope in float32":
                        continue
                    made = kernels(model(family, seed, kind), **change)
                    verdict = judged(family, dtype, seed, kind, Torch(module=made, tokens=TOKENS, dtype=dtype))
                    counts[name, dtype]["fits" if verdict.outcome is Outcome.PASS else verdict.code] += 1
                    share = float(str(verdict.figures.get("budget_used") or math.inf))
                    most[dtype] = max(
                        most.get(dtype, (0.0, "")), (share, f"{family}, {name}, {verdict.figures.get('worst')}")
                    )
                    if verdict.outcome is not Outcome.PASS:
                        print(f"  {family} {dtype} {seed} {name}: {verdict.code} {verdict.offences[:1]}", flush=True)
        table(f"Harmless kernels, {kind} weights, up to seed {seed}", dtypes, counts)
    n = sum(found.total() for found in counts.values())
    wrong = n - sum(found["fits"] for found in counts.values())
    print(f"  {wrong} of {n} do not pass" + ("" if wrong else f"; at most {3 / n:.2%} with 95 % confidence"))
    for dtype, (share, where) in most.items():
        print(f"  {dtype}: at most {share:.0%} of a limit used: {where}", flush=True)


@torch.no_grad()
def try_states(seeds: int, dtypes: tuple[str, ...]) -> None:
    """Capture another state of a right model."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for seed in range(seeds):
        for family in FAMILIES:
            for dtype in dtypes:
                for layer in range(LAYERS):
                    made = model(family, seed)
                    for name, instead, relation in states(Site(made, family, layer)):
                        stack = Taken(module=made, tokens=TOKENS, dtype=dtype, instead=instead)
                        verdict = judged(family, dtype, seed, "drawn", stack)
                        told = str(verdict.offences[0].figures.get("relation")) if verdict.offences else ""
                        words = data.table("clauses/relations")
                        named = any(words[one].partition("{")[0] in told for one in relation.split())
                        counts[name, dtype][verdict.code + (" named" if named else "")] += 1
                        if verdict.code != "capture-mismatch" or not named:
                            print(f"  {family} {dtype} {layer} {name}: {verdict.code}{told}", flush=True)
            table(f"Captures of another state up to {family}, seed {seed}", dtypes, counts)


# --- Costs ------------------------------------------------------------------------------------------------------------


def try_costs(_seeds: int, _dtypes: tuple[str, ...]) -> None:
    """Time a GPT-2 of 124 M parameters; the peak is of the whole process, so each case is measured in a child."""
    import subprocess

    for dtype in ("bfloat16", "float32"):
        for attends in ("sdpa", "eager"):
            subprocess.run([sys.executable, __file__, "--costs-of", dtype, attends], check=True)


def costs(dtype: str, attends: str) -> None:
    """Print what captures and a whole measurement take, in plain forwards by CPU time on one thread.

    A candidate that attends as the reference does has equal bits, and is judged in one pass.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    tokens = [[(37 * n + 11 * n * n + 101 * row) % 50000 + 2 for n in range(128)] for row in range(4)]
    weights = 4 * sum(weight.numel() for weight in made.parameters())
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    other = copy.deepcopy(made, {id(weight): weight for weight in made.parameters()})  # which are not held twice
    other = kernels(other, attends="eager") if attends == "eager" else other
    views = (view(Torch(module=made, tokens=tokens)), view(Torch(module=other, tokens=tokens, dtype=dtype)))
    stack = views[0].prepared(dtype)
    ids = torch.tensor(tokens)

    def timed(run: Callable[[], object], rounds: int = 5) -> float:
        def once() -> float:
            start = time.process_time()
            run()
            return time.process_time() - start

        return min(once() for _ in range(rounds))

    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        plain = timed(lambda: stack.module(input_ids=ids, use_cache=False))
        hooks = timed(lambda: stack.forward(tokens, lambda _point, _rows: None))
        digests = stack.digests(dtype)
        writing = timed(lambda: stack.capture(tokens, Path(folder) / "a.trace", weights=digests))
        hashing = timed(lambda: stack.digests(dtype))
        found: list[Any] = []
        whole = timed(lambda: found.append(VERIFIER.measure(views, {})), 1)
        canary: Any = VERIFIER.canary(views, {}, found[0])
        checked = timed(lambda: canary.seen(VERIFIER.measure(canary.views, {})), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{dtype}, {attends}: forward {plain:.2f} s; hooks × {hooks / plain:.2f}, with writing × "
          f"{writing / plain:.2f}, and with the weights' digests × {(writing + hashing) / plain:.2f}; "
          f"measure × {whole / plain:.1f}, with its canary × {(whole + checked) / plain:.1f}; "
          f"peak {peak / weights:.1f} × the float32 weights ({idle / weights:.1f} idle)", flush=True)  # fmt: skip


if __name__ == "__main__":
    runs: dict[str, Callable[[int, tuple[str, ...]], None]] = {
        "bugs": try_bugs, "harmless": try_harmless, "states": try_states, "families": try_families,
        "decode": try_decode, "costs": try_costs,
        "outliers": lambda seeds, dtypes: try_harmless(seeds, dtypes, "outlier"),
    }  # fmt: skip
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--dtypes", nargs="*", choices=DTYPES, default=DTYPES)
    parser.add_argument("--only", nargs="*", choices=list(runs), default=list(runs))
    parser.add_argument("--saved", type=Path, help="a folder with models of families.py, to be judged instead")
    parser.add_argument("--go-on", type=Path, metavar="FILE", help="note each bug there, and skip those that it has")
    parser.add_argument("--costs-of", nargs=2, metavar=("DTYPE", "ATTENTION"))
    asked = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if asked.go_on:
        NOTED.append(asked.go_on)
        lines = asked.go_on.read_text().splitlines() if asked.go_on.exists() else []
        SEEN |= dict(line.split("\t") for line in lines)
    if asked.costs_of:
        costs(*asked.costs_of)
    elif asked.saved:
        torch.set_num_threads(1)
        try_saved(asked.saved, tuple(asked.dtypes))
    else:
        torch.set_num_threads(1)
        for name in asked.only:
            runs[name](asked.seeds, tuple(asked.dtypes))
