"""Change every key of a configuration, one at a time, and tell what a comparison says of each.

Takes models that transformers saved, each with a GGUF file beside it that llama.cpp's own converter wrote, as
`benchmarks/families.py` makes them. Each key of config.json is changed and held against the directory as it was and
against the GGUF file, and each key of the GGUF header against the file as it was and the directory:

    python -m benchmarks.changed_keys --work /tmp/families [--only '*-bfloat16']

Prints a line a family and pair, what differs and what is not compared as converted, and every key whose change nobody
would see. There must be none.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weighbridge.core.model import Measurement
from weighbridge.formats.gguf_file import ARRAY, SCALARS, STRING, LongValues
from weighbridge.gates.config_agreement import KIND, Limits
from weighbridge.gates.families.harmless_keys import harmless
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.checkpoints import ConfigField, is_key
from weighbridge.verifiers.model_config import VERIFIER
from weighbridge.views.checkpoint import TEXT_PARTS, CheckpointView, open_checkpoint

NOTICED, HARMLESS, NOT_COMPARED, SILENT = "noticed", "harmless", "not compared", "SILENT"
STEPS = {"intermediate_size": 1024}  # Lfm2 rounds it
FILES = tuple(f"{outtype}.gguf" for outtype in ("f32", "bf16", "f16"))
WAYS = (NOTICED, HARMLESS, NOT_COMPARED, SILENT)


def main() -> None:
    """Print the table of every model that lies there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", metavar="GLOB", default="*")
    given = parser.parse_args()
    print(f"{'family':28} {'changed, held against':26} " + " ".join(f"{way:>12}" for way in WAYS))
    whole: Counter[str] = Counter()
    for folder in sorted(path.parent for path in given.work.glob("*/config.json")):
        file = next((folder / name for name in FILES if (folder / name).exists()), None)
        if file is not None and fnmatch.fnmatchcase(folder.name, given.only):
            with tempfile.TemporaryDirectory() as beside:
                whole += table(folder, file, Path(beside))
    print(f"{sum(whole.values())} changes: " + ", ".join(f"{whole[one]} {one}" for one in WAYS))
    raise SystemExit(whole[SILENT] > 0)


def table(folder: Path, file: Path, beside: Path) -> Counter[str]:
    """Print the lines of one family; return how its changes were told."""
    whole: Counter[str] = Counter()
    for told, of, against in (
        ("config.json, config.json", configs, folder),
        ("config.json, header", configs, file),
        ("header, header", headers, file),
        ("header, config.json", headers, folder),
    ):
        source = open_checkpoint(against)
        before = told_of(source, open_checkpoint(folder if of is configs else file))
        found = {key: way(told_of(source, changed), before, key) for key, changed in of(folder, file, beside)}
        counts = Counter(found.values())
        whole += counts
        print(f"{folder.name:28} {told:26} " + " ".join(f"{counts[one]:12}" for one in WAYS), flush=True)
        if (of, against) == (headers, folder):
            print(f"{'':28} as converted: {before.told}")
        if counts[SILENT]:
            print(f"{'':28} {SILENT}: {', '.join(key for key, one in found.items() if one == SILENT)}")
    return whole


def configs(folder: Path, _file: Path, beside: Path) -> Iterator[tuple[str, CheckpointView]]:
    """Yield each key of config.json, and the directory with that key changed."""
    whole = json.loads((folder / "config.json").read_text())
    shutil.copytree(folder, beside, ignore=shutil.ignore_patterns("*.gguf"), dirs_exist_ok=True)
    for path in list(leaves(whole, ())):
        copy = json.loads(json.dumps(whole))
        inner = copy
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = other(inner[path[-1]], STEPS.get(path[-1], 1))
        (beside / "config.json").write_text(json.dumps(copy))
        yield "config.json:" + ".".join(path), open_checkpoint(beside)


def leaves(value: Mapping[str, Any], before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each value; an object is no value, and null says nothing that could be changed."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from leaves(inner, (*before, key))
        elif inner is not None:
            yield (*before, key)


def other(value: Any, step: int = 1) -> Any:
    """Return another value of the same kind; a whole number by a step."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, dict):
        return {**value, "x": 1}
    if isinstance(value, list):
        return [*value[:-1], other(value[-1])] if value else ["x"]
    return value + step if isinstance(value, int) else value * 1.5 + 0.25


def headers(_folder: Path, file: Path, beside: Path) -> Iterator[tuple[str, CheckpointView]]:
    """Yield each key of the header, and the file with that key's value changed in its bytes."""
    places = LongValues(next(iter(open_checkpoint(file).files.values()))).places
    for key, at in places.items():
        if key in ("general.architecture", "general.alignment"):
            continue  # another reader's affair: nothing else of the header is found then
        data = bytearray(file.read_bytes())
        change(data, at)
        (beside / "changed.gguf").write_bytes(data)
        yield key, open_checkpoint(beside / "changed.gguf")


def change(data: bytearray, at: int) -> None:
    """Change the value whose type stands at `at`: its first entry, or its last letter."""
    (kind,) = struct.unpack_from("<I", data, at)
    at += 4
    if kind == ARRAY:
        kind, _ = struct.unpack_from("<IQ", data, at)
        at += 12
    if kind == STRING:
        (length,) = struct.unpack_from("<Q", data, at)
        data[at + 8 + length - 1] ^= 1
    else:
        form = f"<{SCALARS[kind]}"
        (value,) = struct.unpack_from(form, data, at)
        struct.pack_into(form, data, at, other(value))


def way(told: Told, before: Told, key: str) -> str:
    """Return how a comparison tells that a key was changed: by its verdict, or by a row that says why it does not."""
    if told.offences != before.offences:
        return NOTICED
    name = key.replace(":", " ", 1)
    names = {name, *(name.replace(f" {part}.", " ", 1) for part in TEXT_PARTS)}  # laid over the whole, and read so
    rows = [row for row in told.rows if names & {row.source_read, row.candidate_read, *read_also(row)}]
    if any(harmless(row.name) for row in rows):
        return HARMLESS
    return NOT_COMPARED if any(row.why or row.also for row in rows) else SILENT


def read_also(row: ConfigField) -> list[str]:
    """Return where else a side says a field."""
    return [said.rpartition(" (")[2].removesuffix(")") for said in row.also]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a comparison comes to: its rows, and what it objects to."""

    rows: tuple[ConfigField, ...]
    offences: frozenset[tuple[str, str, str, str]]

    @property
    def told(self) -> str:
        """Return how many fields agree, and which differ or are not compared; keys are counted."""
        both = [row for row in self.rows if row.source_basis and row.candidate_basis and not row.why]
        open_ones = [row.name for row in self.rows if row.why and (row.source_basis or row.candidate_basis)]
        fields = [name for name in open_ones if not is_key(name)]
        keys = sum(not harmless(name) for name in open_ones if is_key(name))
        apart = ", ".join(sorted(place for place, *_ in self.offences))
        agree = len(both) - sum(place in {row.name for row in both} for place, *_ in self.offences)
        return f"{agree} agree; not compared: {', '.join(fields)}, {keys} keys" + (
            f"; DIFFERENT: {apart}" if apart else ""
        )


def told_of(source: CheckpointView, candidate: CheckpointView) -> Told:
    """Compare two configurations."""
    found = VERIFIER.measure((source, candidate), {})
    if not isinstance(found, Measurement):  # two views of one directory: nothing differs
        return Told(rows=(), offences=frozenset())
    verdict = KIND.judge({"fields": found}, Limits(required=()))
    objected = (
        (one.place, one.code, str(one.figures.get("source")), str(one.figures.get("candidate")))
        for one in verdict.offences
    )
    return Told(rows=rows_of(found, ConfigField), offences=frozenset(objected))


if __name__ == "__main__":
    main()
