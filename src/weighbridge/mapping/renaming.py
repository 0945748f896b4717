"""Find the one rename after which the names of a source are those of a candidate. Knows only names."""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from weighbridge.core import dataclass, grouped
from weighbridge.mapping.mapping_plan import MAX_NAME, rewritten

# The one list of what comes and goes before a model's own names. What PyTorch's wrappers add stands anywhere in them.
WRAPPERS = {
    "module": "DistributedDataParallel",
    "_orig_mod": "torch.compile",
    "_fsdp_wrapped_module": "FSDP",
    "_checkpoint_wrapped_module": "activation checkpointing",
}
# The keys under which a state is saved, or the attribute of a larger model; a number is a place in a list.
AVERAGED = ("ema", "ema_model", "ema_state_dict", "model_ema", "params_ema", "state_dict_ema")
OF_MODELS: tuple[str, ...] = ("app", "diffusion_model", "language_model", "model", "model_state", "model_state_dict")
OF_MODELS += ("net", "params", "state_dict")
HOLDERS = (*OF_MODELS, *AVERAGED)
OUTER = re.compile(rf"(?:(?:{'|'.join((*HOLDERS, *WRAPPERS))}|\d+)[.])*")
WRAPPED = re.compile(rf"(?<![^.])(?:{'|'.join(WRAPPERS)})[.]")
MAX_NAMES = 1 << 16  # of either side; more are not looked through
MAX_CUTS = 6  # dots of a name behind which its end may begin: names may be hostile
SAMPLE = 64  # unmatched names from which prefixes are guessed
GUESSES = 3
PLAIN = re.compile(r"[\w.-]*")  # a prefix that can be written in YAML and in a shell as it is
Patterns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """Patterns that rewrite the source's names in turn, and the source's name by the candidate's that match then."""

    patterns: Patterns
    origin: Mapping[str, str]
    unwrapped: tuple[str, ...]  # the wrappers whose names were taken away on either side
    prefixes: tuple[str, str]  # what stood before the source's names, and stands before the candidate's

    @property
    def known(self) -> bool:
        """Return whether nothing but wrappers and keys that hold a model came or went, so that no name is guessed."""
        return all(OUTER.fullmatch(prefix) for prefix in self.prefixes)

    @property
    def summary(self) -> str:
        """Return the rename in words."""
        old, new = self.prefixes
        moved = f"{old!r} became {new!r}" if old and new else f"{old!r} taken away" if old else f"{new!r} put before"
        added = ", ".join(f"{name}. is what {WRAPPERS[name]} adds" for name in self.unwrapped)
        return (moved if old or new else "wrappers taken away") + (f" ({added})" if added else "")

    @property
    def yaml(self) -> str:
        """Return the line of a mapping file that says it."""
        rules = ", ".join(f'{{from: "{pattern}", to: "{new}"}}' for pattern, new in self.patterns)
        return f"rename: [{rules}]"


def renamings(source: Collection[str], candidate: Collection[str], *, more_than: int) -> tuple[Renaming, ...]:
    """Return the renames after which most names match: more than now, and half of the candidate's; several if equal."""
    if not candidate or max(len(source), len(candidate)) > MAX_NAMES:
        return ()
    there = next(unwrapped(candidate))
    found: list[Renaming] = []
    for patterns in _tried(source, there):
        compiled = [(re.compile(pattern), new) for pattern, new in patterns]
        renamed = {rewritten(name, compiled): name for name in sorted(source, reverse=True)}
        origin = {name: renamed[bare] for bare, name in there.items() if bare in renamed}
        if any(origin == other.origin for other in found):
            continue
        taken = " ".join((*(one for one, _ in patterns), *(name for bare, name in there.items() if bare != name)))
        old, new = next(((pattern, new) for pattern, new in patterns if pattern.startswith("^")), ("", ""))
        gone = tuple(name for name in WRAPPERS if re.search(rf"\b{name}\b", taken))
        prefixes = (old.removeprefix("^").replace("[.]", "."), new)
        found.append(Renaming(patterns=patterns, origin=origin, unwrapped=gone, prefixes=prefixes))
    most = max((len(one.origin) for one in found), default=0)
    best = tuple(one for one in found if len(one.origin) == most)
    enough = most > more_than and 2 * most >= len(candidate)
    return best[:GUESSES] if enough and (len(best) == 1 or all(one.known for one in best)) else ()


def _tried(source: Collection[str], candidate: Collection[str]) -> Iterator[Patterns]:
    yield ()
    for prefixes in _prefixes(source, candidate):
        yield (prefixes,)
    found = "|".join(name for name in WRAPPERS if any(f".{name}." in f".{one}" for one in source))
    if found:
        away = f"(?<![^.])({found})[.]", ""
        yield (away,)
        inside = {rewritten(name, [(re.compile(away[0]), "")]) for name in source}
        for prefixes in _prefixes(inside, candidate):
            yield (away, prefixes)


def _prefixes(source: Collection[str], candidate: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the likeliest patterns: what stands before the longest end that names of both sides share."""
    known = set(candidate)
    # What stands before an end.
    ends = grouped((end, prefix) for name in source if name not in known for prefix, end in _cut(name))
    votes: Counter[tuple[str, str]] = Counter()
    unmatched = sorted(known.difference(source))
    for name in unmatched[:: max(1, len(unmatched) // SAMPLE)]:
        new, olds = next(((prefix, ends[end]) for prefix, end in _cut(name) if end in ends), ("", []))
        for old in olds if len(olds) <= GUESSES else ():
            if PLAIN.fullmatch(old) and PLAIN.fullmatch(new):
                votes[old, new] += 1
    for (old, new), _ in votes.most_common(GUESSES):
        yield "^" + old.replace(".", "[.]"), new


def _cut(name: str) -> Iterator[tuple[str, str]]:
    yield "", name
    for dot in itertools.islice(re.finditer(r"\.", name), MAX_CUTS if len(name) <= MAX_NAME else 0):
        yield name[: dot.end()], name[dot.end() :]


def unwrapped(names: Collection[str]) -> Iterator[Mapping[str, str]]:
    """Yield the names by what they are without wrappers, and then without each key that all of them stand under."""
    found = {WRAPPED.sub("", name): name for name in names}
    if len(found) < len(names):
        found = {name: name for name in names}
    yield found
    while (outer := {bare.partition(".")[0] for bare in found}) <= {*HOLDERS, "0"} and len(outer) == 1:
        found = {bare.partition(".")[2]: name for bare, name in found.items()}
        yield found
