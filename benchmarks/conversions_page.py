"""Write parts of spec/conversions.md from what the scripts over real conversions printed; the other parts stay.

    python -m benchmarks.conversions_page [--converted FILE --registered FILE] [--quantised FILE --real FILE] \\
        [--damaged FILE]
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "spec" / "conversions.md"
CONVERTED_PART = """## Converted

The classes that llama.cpp's converter registers for text models, by what became of them here:

| | classes | |
|---|---|---|
{registered}

Every family of them that transformers can build (`benchmarks/families.py`), from BF16, F16
and F32 to F32 (`lossless`), F16 and BF16 (`rounded:`) and Q8_0 (`requant:`), the real model from F32 alone: how many
conversions were accepted, of how many no rule spoke of some tensor (exit 3), and how many were refused (exit 1); the
tensors of all conversions of a family by class. Of the configuration: in how many conversions all that was compared
agrees, and how many fields were compared and not.

{converted}

{refused}

An architecture that is not in this table is compared by names and kinds of tensors. What is equal is equal; what is
not, or has a name that no table knows, is `not compared: no rule for architecture …` (exit 3), without a mechanism.

What differs in configurations, one conversion a family; a line of the converter says that it is what loses it:

{lost}
"""
QUANTISED_PART = """## Quantised

From F32 to every mixture of llama.cpp's quantiser, under `quantised:` and its name: without an importance matrix, with
a drawn one (log-normal, a spread of e²), and with one that `llama-imatrix` measured over a text, where it can run the
model. Where a count is missing, the quantiser refuses to work without a matrix.

{quantised}

The relative RMSE of the tensors as multiples of the typical one, of which 1.5 is accepted: count, least and most.

{errors}

The real model:

{real}

{real_errors}
"""
DAMAGED_PART = """## Damaged

Every conversion is damaged in one way and compared. `right` names what was done; `honest` says no more than different
content; `unseen` stays within the error of its block type: a share of the codes of a quantised tensor may be another
one than the nearest (under "Nearest codes"), and one flipped bit is less. [Damages of many
families](damaged-families.md) does the same to over a hundred families.

{damaged}
"""
CONVERTED = re.compile(
    r"(?P<model>\S+) +\S+ +\w+ +\S+ +(?P<outcome>[A-Z]+) +(?P<architecture>\S+): (?P<told>.+) \|\| (?P<configured>.+)"
)
REFUSED = {
    "chameleon": "of the norms of queries and keys the converter keeps the first head's for all (chameleon.py:56).",
    "bert-reranker": "the converter leaves out the pooler that the classifier stands on (bert.py:83).",
    "pocket-tts": "the converter knows the names of the published checkpoint alone, and writes no tensor of this one.",
    "qwen3-vl-moe": "transformers saves what it made itself with experts that are turned already, and the converter "
    "turns them again, as it must those of the published checkpoint (qwen3vl.py:330), which is accepted "
    "(`qwen3-vl-moe-published`).",
    "granitemoe-hybrid": "transformers 5 writes `full_attention` into `layer_types`, the converter looks for "
    "`attention` (granite.py:443): it permutes no queries and keys, and states no key heads for that layer. What "
    "transformers 4 wrote (`granitemoe-hybrid-4`) is accepted.",
}
VERDICTS = {"FAIL": "is refused, and rightly", "BLOCKED": "is not compared"}
QUANTISED = re.compile(r"\S+ +(?P<type>\w+) +(?P<way>plain|drawn|measured) +(?P<outcome>[A-Z]+) +(?P<told>.+)")
RATIOS = re.compile(r"(?P<type>\w+) +(?P<typical>[\d.]+) +(?P<bound>[\d.]+)(?P<cells>( \| .*){3})")
WAYS = ("plain", "drawn", "measured")
FAMILY = ("family", "architecture", "accepted", "no rule", "refused", "configuration", "classes")


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
        agree = sum(" | " not in match["configured"] for match in own)
        fields = own[0]["configured"].partition(" | ")[0]
        counted = ", ".join(f"{n} {name}" for name, n in classes.most_common())
        yield model, own[0]["architecture"], *told, f"{agree} of {len(own)} ({fields})", counted


def lost(lines: Sequence[str]) -> Iterator[str]:
    """Give one line a family whose configuration differs: each field, as `compare` tells it."""
    found = [match for line in lines if (match := CONVERTED.fullmatch(line))]
    differing = {match["model"]: match["configured"] for match in reversed(found) if " | " in match["configured"]}
    for model in dict.fromkeys(match["model"] for match in found):
        if model in differing:
            yield f"- `{model}`: " + "; ".join(differing[model].split(" | ")[1:])


def refused(lines: Sequence[str]) -> Iterator[str]:
    """Give one sentence a family of which conversions were refused, or not compared: why they are."""
    found = [match for line in lines if (match := CONVERTED.fullmatch(line)) and match["outcome"] in VERDICTS]
    for model in dict.fromkeys(match["model"] for match in found):
        outcome = next(match["outcome"] for match in found if match["model"] == model)
        yield f"- `{model}` {VERDICTS[outcome]}: {REFUSED[model]}"


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


def converted_part(converting: Sequence[str], known: str) -> str:
    """Write the part on conversions, and on what the converter registers."""
    return CONVERTED_PART.format(
        registered=known.strip(), converted=table(FAMILY, converted(converting)),
        refused="\n".join(refused(converting)), lost="\n".join(lost(converting)),
    )  # fmt: skip


def quantised_part(made: Sequence[str], own: Sequence[str]) -> str:
    """Write the part on mixtures of tiny models, and of the real one."""
    ways = ["mixture", "without", "drawn", "measured", "types, the most frequent first"]
    errors = ["type", "typical", "bound", "without", "drawn", "measured"]
    return QUANTISED_PART.format(
        quantised=table(ways, quantised(made)), errors=table(errors, ratios(made)),
        real=table(ways, quantised(own)), real_errors=table(errors, ratios(own)),
    )  # fmt: skip


def laid(page: str, part: str) -> str:
    """Put a part in the place of the one with its heading."""
    heading = part.partition("\n")[0] + "\n"
    before, _, rest = page.partition(heading)
    _, following, after = rest.partition("\n## ")
    return before + part + (following + after if following else "")


def main() -> None:
    """Write the parts whose figures are given into the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for names in (("--converted", "--registered"), ("--quantised", "--real"), ("--damaged",)):
        for name in names:
            parser.add_argument(name, type=Path)
    given = vars(parser.parse_args())
    told = {name: path.read_text(encoding="utf-8") for name, path in given.items() if path}
    page = PAGE.read_text(encoding="utf-8")
    if "converted" in told:
        page = laid(page, converted_part(told["converted"].splitlines(), told["registered"]))
    if "quantised" in told:
        page = laid(page, quantised_part(told["quantised"].splitlines(), told["real"].splitlines()))
    if "damaged" in told:
        page = laid(page, DAMAGED_PART.format(damaged=told["damaged"].strip()))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
