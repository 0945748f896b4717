"""Find the one rename after which the names of a source are those of a candidate: a prefix, or what a wrapper adds.

Knows only names; shapes and values are compared under the mapping once it is asked for.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from weighbridge.comparison.mapping_plan import MAX_NAME, rewritten

WRAPPERS = {
    "module.": "DistributedDataParallel", "_orig_mod.": "torch.compile", "_fsdp_wrapped_module.": "FSDP",
    "_checkpoint_wrapped_module.": "activation checkpointing",
}  # fmt: skip
MAX_NAMES = 1 << 14  # of either side; more are not looked through
MAX_CUTS = 6  # dots of a name behind which its end may begin: names may be hostile
SAMPLE = 64  # unmatched names from which prefixes are guessed
GUESSES = 3
PLAIN = re.compile(r"[\w.-]*")  # a prefix that can be written in YAML and in a shell as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Patterns that rewrite the source's names in turn, and the candidate's names that match then.

    `wrappers` says who adds the names that are taken away.
    """

    patterns: tuple[tuple[str, str], ...]
    matched: int
    wrappers: tuple[str, ...]

    @property
    def yaml(self) -> str:
        """Return the line of a mapping file that says it."""
        rules = ", ".join(f'{{from: "{pattern}", to: "{new}"}}' for pattern, new in self.patterns)
        return f"rename: [{rules}]"


def renaming(source: Collection[str], candidate: Collection[str], *, more_than: int) -> Renaming | None:
    """Return the rename after which most names match: more than now, and half of the candidate's; None without one."""
    if not candidate or max(len(source), len(candidate)) > MAX_NAMES:
        return None
    found = [Renaming(patterns=one, matched=_matched(source, candidate, one), wrappers=_wrappers(one))
             for one in _tried(source, candidate)]  # fmt: skip
    best = max(found, key=lambda one: (one.matched, -len(one.patterns)), default=None)
    return best if best and best.matched > more_than and 2 * best.matched >= len(candidate) else None


def _tried(source: Collection[str], candidate: Collection[str]) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield a prefix for another, wrappers taken away wherever they stand, and both."""
    for prefixes in _prefixes(source, candidate):
        yield (prefixes,)
    found = "|".join(name.removesuffix(".") for name in WRAPPERS if any(f".{name}" in f".{one}" for one in source))
    if found:
        away = f"(?<![^.])({found})[.]", ""
        yield (away,)
        inside = {rewritten(name, [(re.compile(away[0]), "")]) for name in source}
        for prefixes in _prefixes(inside, candidate):
            yield (away, prefixes)


def _prefixes(source: Collection[str], candidate: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the likeliest patterns: what stands before the longest end that names of both sides share."""
    known = set(candidate)
    ends: dict[str, str | None] = {}  # what stands before an end; None where several names have it
    for name in source:
        for prefix, end in _cut(name) if name not in known else ():
            ends[end] = None if end in ends else prefix
    votes: Counter[tuple[str, str]] = Counter()
    unmatched = sorted(known.difference(source))
    for name in unmatched[:: max(1, len(unmatched) // SAMPLE)]:
        shared = ((prefix, ends[end]) for prefix, end in _cut(name) if end in ends)
        new, old = next(shared, ("", None))
        if old is not None and PLAIN.fullmatch(old) and PLAIN.fullmatch(new):
            votes[old, new] += 1
    for (old, new), _ in votes.most_common(GUESSES):
        yield "^" + old.replace(".", "[.]"), new


def _cut(name: str) -> Iterator[tuple[str, str]]:
    """Yield a name's beginning and its end, cut before it and behind each dot: the longest end first."""
    yield "", name
    for dot in itertools.islice(re.finditer(r"\.", name), MAX_CUTS if len(name) <= MAX_NAME else 0):
        yield name[: dot.end()], name[dot.end() :]


def _matched(source: Collection[str], candidate: Collection[str], patterns: tuple[tuple[str, str], ...]) -> int:
    compiled = [(re.compile(pattern), new) for pattern, new in patterns]
    return len({rewritten(name, compiled) for name in source} & set(candidate))


def _wrappers(patterns: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    taken = " ".join(pattern for pattern, _ in patterns)
    found = (name for name in WRAPPERS if re.search(rf"\b{name.removesuffix('.')}\b", taken))
    return tuple(f"{name} is what {WRAPPERS[name]} adds" for name in found)
