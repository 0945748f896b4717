"""What a GGUF tensor is called whose source name is known: by the gguf package, or as the kinds that a file holds."""

import importlib.util
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from types import ModuleType
from typing import Any

from weighbridge.mapping.gguf_rules import rules

SUFFIXES = (".weight", ".bias")
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")
OF_MTP = re.compile(r"(?:model\.)?mtp\.(?:layers\.(\d+)\.(.+)|(\w+)(\.weight))")
OF_STACK = re.compile(r"model\.([LH])_module\.layers\.(\d+)\.(.+)")


def _part(module: str) -> Any:
    """Return one module of the gguf package; what the package imports of itself costs half as much as numpy."""
    bare = "weighbridge.mapping.gguf_tables"
    if bare not in sys.modules:
        found = importlib.util.find_spec("gguf")
        assert found is not None  # the core requires it
        package = ModuleType(bare)
        package.__path__ = [*(found.submodule_search_locations or ())]
        sys.modules[bare] = package
    return importlib.import_module(f"{bare}.{module}")


class Names:
    """The names of one architecture, and those of the kinds of tensors that a file holds."""

    def __init__(self, architecture: str, candidate: Collection[str]) -> None:
        """Read the tables of the gguf package."""
        gguf, rows_of = _part("constants"), _part("tensor_mapping").TensorNameMap
        arch = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}.get(architecture)
        self._candidate = candidate
        kinds = {NUMBER.sub("{bid}", name, count=1) for name in candidate}
        kinds |= {kind.removesuffix(suffix) for kind in kinds for suffix in SUFFIXES}
        newer = {of for of, name in gguf.TENSOR_NAMES.items() if name in kinds and (arch is None or "{bid}" in name)}
        own = set() if arch is None else set(gguf.MODEL_TENSORS[arch])
        rows = {**rows_of.mappings_cfg, **rows_of.block_mappings_cfg}
        rows |= {} if arch is None else rows_of.arch_block_mappings_cfg.get(arch, {})
        self._table: dict[str, str] = {}
        for tensor in [*(of for of in rows if of in newer), *(of for of in rows if of in own)]:
            new = gguf.TENSOR_NAMES[tensor]
            self._table |= dict.fromkeys((new, *rows[tensor]), new)

    def target(self, name: str) -> str | None:
        """Return the GGUF tensor of a source tensor, or None where no table has its name."""
        spelled = list(_spellings(name))
        known = (new for one in spelled if (new := self._named(one)))
        return next(known, spelled[0] if spelled[0] in self._candidate else None)

    def _named(self, name: str) -> str | None:
        """Look a name up, with and without its suffix."""
        number = NUMBER.search(name)
        layered = name if number is None else NUMBER.sub("{bid}", name, count=1)
        for suffix in ("", *SUFFIXES):
            new = self._table.get(layered.removesuffix(suffix)) if layered.endswith(suffix) else None
            if new is not None:
                return new.replace("{bid}", number[0] if number else "{bid}") + suffix
        return None


def _spellings(name: str) -> Iterator[str]:
    """Spell a name as a table may know it: as the converter does, without a wrapper's prefix, or with the usual."""
    for rule in rules().respelled:
        name = re.sub(rule.names, rule.to[0], name)
    yield name
    for prefix in rules().prefixes:
        if name.startswith(prefix):
            yield name.removeprefix(prefix)
            yield "model." + name.removeprefix(prefix)
    yield "model." + name


def by_layer(names: Iterable[str], blocks: int) -> dict[str, str]:
    """Return each source tensor by its name among the numbered layers, behind which those that predict tokens stand."""
    return {_by_layer(name, blocks): name for name in names}


def _by_layer(name: str, blocks: int) -> str:
    if found := OF_STACK.fullmatch(name):  # hrm_text.py:54
        return f"model.layers.{int(found[2]) + blocks * (found[1] == 'H')}.{found[3]}"
    found = OF_MTP.fullmatch(name)
    if found is None or (found[3] and found[3] not in rules().further):
        return name
    if found[3]:  # qwen.py:324
        return f"model.layers.{blocks}.{rules().further[found[3]]}{found[4]}"
    return f"model.layers.{blocks + int(found[1])}.{found[2]}"
