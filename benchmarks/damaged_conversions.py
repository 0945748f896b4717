"""Damage real conversions in the ways that have shipped, and print what `weighbridge compare` answers to each.

Makes and converts the models that it damages, as `conversions.py` does, in the same folder:

    python -m benchmarks.damaged_conversions --converter …/vendor/llama.cpp --work /tmp/conversions \\
        [--library …/libllama.so]

A line is `right` when what was done is named, `honest` when no more than "different content" is said, `WRONG` when
another mechanism is named or the exit code is another. Each conversion is weighed undamaged as well, to be accepted.
With llama.cpp's library, what its quantiser makes is damaged too; `unseen` is what stays within the error of its type.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import families
from benchmarks.conversions import TYPES
from benchmarks.damages import DAMAGES, OF_CONVERTERS, OF_FAMILIES, OF_QUANTISERS, UNSEEN, Damage
from benchmarks.quantised_conversions import CHANGED, FTYPES, Quantiser
from benchmarks.stored_tensors import read, write
from click.testing import CliRunner
from safetensors.numpy import load_file, save_file

from weighbridge.cli.compare import command as compare
from weighbridge.gates.families.tensor_pairs import UNEXPLAINED

REFUSED, UNREADABLE = 1, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What comparing said: the exit code, and for each place its code and mechanism."""

    code: int
    named: dict[str, str]
    error: str = ""


def asked(source: Path, candidate: Path, policy: str | None) -> Answer:
    """Compare, and read the answer."""
    arguments = [str(source), str(candidate), "--json", *(("--policy", policy) if policy else ())]
    done = CliRunner().invoke(compare, arguments)
    if not done.stdout.startswith("["):
        return Answer(code=done.exit_code, named={}, error=done.output.strip())
    (answer,) = json.loads(done.stdout)
    found = answer["finding"]
    named = {one["place"]: one["figures"].get("mechanism") or one["code"] for one in found["offences"]}
    return Answer(code=done.exit_code, named=named, error="" if found["offences"] else found["code"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table."""

    model: str
    damage: str
    policy: str
    answer: Answer
    place: str
    right: str
    code: int = REFUSED

    @property
    def named(self) -> str:
        """Tell what was named at the place of the damage, or the error."""
        return self.answer.named.get(self.place, self.answer.error or "nothing")

    @property
    def judged(self) -> str:
        """Hold what was named against what was done."""
        if self.right == UNSEEN and self.answer.code == 0:
            return "unseen"
        if self.answer.code != self.code or self.named not in (self.right, UNEXPLAINED):
            return "WRONG"
        return "honest" if self.named == UNEXPLAINED else "right"

    def told(self) -> str:
        """Write the line."""
        cells = self.damage, self.model, self.policy, f"exit {self.answer.code}", self.named, self.judged
        return "| " + " | ".join(cells) + " |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """Where models are made, converted and damaged."""

    converter: Path
    work: Path
    library: Path | None

    def candidate(self, model: str, dtype: str, outtype: str) -> tuple[Path, Path]:
        """Give a model's directory and its conversion, or what the quantiser makes of a wide one."""
        if outtype in FTYPES:
            return self.quantised(outtype)
        folder = self.made(model, dtype)
        return folder, self.converted(folder, outtype)

    def quantised(self, ftype: str) -> tuple[Path, Path]:
        """Give a wide model and what the quantiser makes of it."""
        assert self.library is not None
        folder = self.work / "llama-wide"
        if not (folder / "config.json").exists():
            families.build("llama", "float32", folder, changed=CHANGED["llama"])
        target = folder / f"{ftype}.gguf"
        refused = Quantiser(self.library).quantise(self.converted(folder, "f32"), target, FTYPES[ftype], {})
        if refused:
            raise SystemExit(f"{ftype}: {refused}")
        return folder, target

    def made(self, model: str, dtype: str) -> Path:
        """Give the directory of a model, made where it is not there."""
        folder = self.work / f"{model}-{dtype}"
        if not (folder / "config.json").exists():
            families.build(model, dtype, folder)
        return folder

    def converted(self, folder: Path, outtype: str) -> Path:
        """Give the conversion of a model."""
        failed = families.convert(self.converter, folder, [outtype])
        if failed:
            raise SystemExit(f"{folder.name} {outtype}: {failed}")
        return folder / f"{outtype}.gguf"


def damaged(shop: Workshop, damage: Damage) -> Line:
    """Damage one conversion and weigh it."""
    folder, candidate = shop.candidate(damage.model, damage.source, damage.outtype)
    head, tensors = read(candidate)
    if damage.known:
        wide = {name: stored.values for name, stored in read(shop.converted(folder, "f32"))[1].items()}
        damage.change(tensors, wide | load_file(folder / "model.safetensors"))
    else:
        damage.change(tensors)
    target = write(folder / "damaged.gguf", head, tensors)
    answer = asked(folder, target, damage.policy)
    target.unlink()
    return Line(
        model=f"{damage.model} {damage.source} → {damage.outtype}", damage=damage.name, policy=damage.policy,
        answer=answer, place=damage.place, right=damage.right,
    )  # fmt: skip


def converters_own(shop: Workshop) -> Iterator[Line]:
    """Let the converter do the damage: its default type on a float32 model, a Gemma with a head of its own."""
    llama = shop.made("llama", "float32")
    yield Line(
        model="llama float32 → auto", damage="--outtype auto on an F32 model", policy="(none)",
        answer=asked(llama, shop.converted(llama, "auto"), None), place="blk.1.ffn_up.weight", right="value-cast",
    )  # fmt: skip
    untied = shop.work / "gemma-untied"
    if not (untied / "config.json").exists():
        families.build("gemma", "float32", untied, changed={"tie_word_embeddings": False})
    yield Line(
        model="gemma float32 → f32", damage="an untied head that the converter dropped", policy="(none)",
        answer=asked(untied, shop.converted(untied, "f32"), None), place="lm_head.weight", right="missing",
    )  # fmt: skip


def sharded(shop: Workshop) -> Iterator[Line]:
    """Damage the shards of a source, and weigh an import of the source as it was."""
    import transformers

    whole = shop.made("llama", "float32")
    candidate = shop.converted(whole, "f32")
    for name, damage, right, code in SHARDS:
        folder = shop.work / "sharded"
        shutil.rmtree(folder, ignore_errors=True)
        transformers.LlamaForCausalLM.from_pretrained(whole).save_pretrained(folder, max_shard_size="150KB")
        shards = sorted(folder.glob("*.safetensors"))
        undamaged = asked(folder, candidate, None)
        if undamaged.code or len(shards) < 3:
            raise SystemExit(f"{len(shards)} shards, undamaged: {undamaged}")
        place = damage(folder, shards)
        yield Line(model=f"llama in {len(shards)} shards", damage=name, policy="(none)",
                   answer=asked(folder, candidate, None), place=place, right=right, code=code)  # fmt: skip


def _exchange_files(_folder: Path, shards: list[Path]) -> str:
    first, second = (shard.read_bytes() for shard in shards[:2])
    shards[0].write_bytes(second)
    shards[1].write_bytes(first)
    return ""


def _point_elsewhere(folder: Path, shards: list[Path]) -> str:
    index = folder / "model.safetensors.index.json"
    found = json.loads(index.read_text())
    name = next(name for name, shard in found["weight_map"].items() if shard != shards[0].name)
    found["weight_map"][name] = shards[0].name
    index.write_text(json.dumps(found))
    return ""


def _other_revision(_folder: Path, shards: list[Path]) -> str:
    for shard in shards:
        tensors = load_file(shard)
        name = next((name for name in sorted(tensors) if name.endswith("mlp.up_proj.weight")), "")
        if name:
            break
    save_file({key: value + (key == name) * 1e-3 for key, value in tensors.items()}, shard)
    return "blk." + name.split(".")[2] + ".ffn_up.weight"


SHARDS: tuple[tuple[str, Callable[[Path, list[Path]], str], str, int], ...] = (
    ("two shards exchanged", _exchange_files, "shard-wrong", UNREADABLE),
    ("the index names another shard", _point_elsewhere, "shard-wrong", UNREADABLE),
    ("a shard of another revision", _other_revision, UNEXPLAINED, REFUSED),
)


def truncated(shop: Workshop) -> Iterator[Line]:
    """Cut the last byte, and the last 4 KiB, off a conversion."""
    folder = shop.made("llama", "float32")
    data = shop.converted(folder, "f32").read_bytes()
    for size in (1, 4096):
        target = folder / "damaged.gguf"
        target.write_bytes(data[:-size])
        answer = asked(folder, target, "lossless")
        target.unlink()
        yield Line(model="llama float32 → f32", damage=f"truncated by {size}", policy="lossless", answer=answer,
                   place="", right="gguf-truncated", code=UNREADABLE)  # fmt: skip


def lines(shop: Workshop) -> Iterator[Line]:
    """Give every line of the table."""
    yield from (damaged(shop, damage) for damage in (*DAMAGES, *OF_CONVERTERS, *OF_FAMILIES))
    yield from converters_own(shop)
    yield from sharded(shop)
    yield from truncated(shop)
    yield from (damaged(shop, damage) for damage in OF_QUANTISERS if shop.library)


def _meant(outtype: str) -> str:
    """Name the policy that means a conversion as it is."""
    return f"quantised:{outtype}" if outtype in FTYPES else TYPES[outtype]


def undamaged(shop: Workshop) -> tuple[int, list[str], list[str]]:
    """Weigh every conversion that is damaged, as it was, and written again in the same way.

    Return how many there are, those whose tensors are refused, and those whose configuration alone is.
    """

    def weighed(model: str, source: str, outtype: str, policy: str) -> Answer:
        folder, candidate = shop.candidate(model, source, outtype)
        target = write(folder / "again.gguf", *read(candidate))
        answer = asked(folder, target, policy)
        target.unlink()
        return answer

    done = (*DAMAGES, *OF_CONVERTERS, *OF_FAMILIES, *(OF_QUANTISERS if shop.library else ()))
    kinds = {(one.model, one.source, one.outtype, _meant(one.outtype)) for one in done}
    answers = {f"{kind[0]} {kind[1]} → {kind[2]}": weighed(*kind) for kind in sorted(kinds)}
    refused = [name for name, answer in answers.items() if answer.named or answer.code not in (0, REFUSED)]
    return len(answers), refused, [name for name, one in answers.items() if one.code and name not in refused]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--converter", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--library", type=Path)
    given = parser.parse_args()
    shop = Workshop(converter=given.converter, work=given.work, library=given.library)
    print("| damage | conversion | policy | verdict | mechanism named | |\n|---|---|---|---|---|---|")
    counted: Counter[str] = Counter()
    for line in lines(shop):
        counted[line.judged] += 1
        print(line.told(), flush=True)
    print("\n" + ", ".join(f"{count} {judged}" for judged, count in counted.most_common()))
    count, refused, differing = undamaged(shop)
    models = {one.model for one in (*DAMAGES, *OF_CONVERTERS, *OF_FAMILIES, *(OF_QUANTISERS if shop.library else ()))}
    print(f"{len(models)} families, {count} conversions; undamaged, the tensors of {count - len(refused)} are accepted"
          + (f", and the configuration of all but {', '.join(differing)}" if differing else ""))  # fmt: skip
    sys.exit(bool(counted["WRONG"] or refused))


if __name__ == "__main__":
    main()
