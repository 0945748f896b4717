"""Weigh conversions by llama.cpp's own converter against their sources, in every dtype and type.

Takes what `families.py` beside it made and converted:

    python -m benchmarks.conversions --work /tmp/families [--only qwen3-next] > converted

Prints one line a conversion: what `weighbridge compare` answers under the policy that names what was meant, of the
tensors and of the configuration.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.families import FAMILIES, SOURCES
from click.testing import CliRunner

from weighbridge.cli.compare import command as compare
from weighbridge.quantities.checkpoints import is_key
from weighbridge.views.checkpoint import open_checkpoint

TYPES = {"f32": "lossless", "f16": "rounded:F16", "bf16": "rounded:BF16", "q8_0": "requant:Q8_0"}
TOLD = {"PASS": "accepted", "BLOCKED": "no rule", "FAIL": "refused"}


def weigh(folder: Path, outtype: str) -> tuple[str, str]:
    """Compare one import with its source, and count the classes."""
    file = folder / f"{outtype}.gguf"
    done = CliRunner().invoke(compare, [str(folder), str(file), "--json", "--policy", TYPES[outtype]])
    if not done.stdout.startswith("["):
        return "ERROR", done.output.strip().splitlines()[-1] if done.output else "no answer"
    (answer,) = json.loads(done.stdout)
    counted = Counter(answer["classes"].values())
    said = answer["finding"]["says"] if answer["finding"]["outcome"] != "PASS" else []
    architecture = open_checkpoint(file).metadata["general.architecture"]
    told = ", ".join(f"{counted[name]} {name}" for name in sorted(counted)) + (f"; {said[0]}" if said else "")
    return answer["finding"]["outcome"], f"{architecture}: {told} || {configuration(answer['configuration'])}"


def configuration(finding: Mapping[str, Any]) -> str:
    """Tell how many fields agree and are not compared, and each that differs."""
    if not finding["of"]:
        return str(finding["code"])
    open_ones = [one for one in finding["figures"]["not_compared"] if not is_key(one.partition(" (")[0])]
    told = f"{finding['of'] - len(finding['offences'])} agree, {len(open_ones)} not compared"
    return " | ".join((told, *(finding["says"] if finding["offences"] else ())))


def main() -> None:
    """Weigh all that is asked for and lies there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--source", type=Path, help="a directory with its conversions, in place of the families")
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    outcomes: Counter[str] = Counter()
    named = [(name, dtype, given.work / f"{name}-{dtype}") for name in given.only or FAMILIES for dtype in SOURCES]
    for name, dtype, folder in [(given.source.name, "as-it-is", given.source)] if given.source else named:
        for outtype, policy in TYPES.items():
            there = (folder / f"{outtype}.gguf").exists()
            outcome, told = weigh(folder, outtype) if there else ("NOT CONVERTED", "")
            outcomes[TOLD.get(outcome, outcome)] += 1
            print(f"{name:20} {dtype:9} {outtype:5} {policy:13} {outcome:8} {told}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))


if __name__ == "__main__":
    main()
