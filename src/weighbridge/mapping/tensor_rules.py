"""Rules by which tensors are made of others, by names and shapes alone: of a mapping file, and of known layouts."""

import functools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from weighbridge.core import dataclass, replace, table
from weighbridge.mapping.mapping_plan import Pairing, Part, Shape, Shapes

Numbers = Callable[[], Mapping[str, int]]  # by the words that a rule may say for them; asked for where one does
PLACE = re.compile(r"<(\w+|\.\.\.)>")  # `<layer>` is what stands between two dots, `<...>` anything
ANY, EACH = "...", "each"
RANGE = re.compile(r"(\d*):(\d*)")
MAX_PARTS = 1 << 14


class RuleError(Exception):
    """A rule that does not fit the tensors that it names."""


class UnknownNumberError(RuleError):
    """A rule that fits, and names a number that no configuration says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How each tensor of a pattern is made.

    Each tensor `of` is viewed by its rows (all dimensions but the last) as `view`, of which `index` keeps some and
    which `permute` exchanges, or is transposed; then they are put together along dimension `cat` of the view, and `add`
    is added. What `<each>` names in `of` alone is stacked, in the order of its numbers.
    """

    tensor: str
    of: tuple[str, ...]
    view: tuple[int | str, ...] = ()
    index: tuple[int | str, ...] = ()
    permute: tuple[int, ...] = ()
    transpose: bool = False
    cat: int = 0
    add: float = 0.0

    @property
    def transform(self) -> str:
        """Return in words what becomes of the values."""
        done: dict[str, object] = {"permuted": self.permute, "transposed": self.transpose, "a part": self.index}
        done |= {"stacked": any(f"<{EACH}>" in one for one in self.of), "fused": len(self.of) > 1}
        done |= {f"{self.add:+g}": self.add}
        return ", ".join(word for word, is_done in done.items() if is_done)

    def fits(self, name: str) -> Mapping[str, str] | None:
        """Return what the places of the pattern stand for in a name, or None for another name."""
        found = _compiled(self.tensor).fullmatch(name)
        return found.groupdict() if found else None

    def unused(self, candidate: Collection[str]) -> str:
        """Return why the rule makes none of these tensors."""
        for name, known in ((name, self.fits(name)) for name in candidate):
            if known is not None:
                needed = ", ".join(_filled(one, known) for one in self.of)
                return f"{name} is to be made of {needed}, not all of which are in the source"
        return f"no tensor of the import is called {self.tensor}"


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    found, at, seen = "", 0, set[str]()
    for place in PLACE.finditer(pattern):
        name = "any" if place[1] == ANY else place[1]
        again = f"(?P={name})" if name in seen else f"(?P<{name}>{'.*' if place[1] == ANY else '[^.]+'})"
        found += re.escape(pattern[at : place.start()]) + again
        at = place.end()
        seen.add(name)
    return re.compile(found + re.escape(pattern[at:]))


def _filled(pattern: str, known: Mapping[str, str]) -> str:
    return PLACE.sub(lambda place: known.get("any" if place[1] == ANY else place[1], place[0]), pattern)


def rule_of(given: Mapping[str, Any]) -> Rule:
    """Return a rule as a mapping file or a contract gives it."""
    return Rule(**{**given, **{key: tuple(given.get(key) or ()) for key in ("of", "view", "index", "permute")}})


def sources(rule: Rule, known: Mapping[str, str], source: Shapes) -> tuple[list[str], int]:
    """Return the tensors that one is made of, in order, and how many groups of them are stacked, 0 for none."""
    names = [_filled(one, known) for one in rule.of]
    if not any(f"<{EACH}>" in name for name in names):
        return names, 0
    pattern = _compiled(next(name for name in names if f"<{EACH}>" in name))
    before = next(name for name in names if f"<{EACH}>" in name).partition(f"<{EACH}>")[0]
    matches = (pattern.fullmatch(name) for name in source if name.startswith(before))
    numbers = sorted(int(found[EACH]) for found in matches if found and found[EACH].isdecimal())
    return [_filled(name, {EACH: str(number)}) for number in numbers for name in names], len(numbers)


def made(
    rules: Iterable[Rule], names: Collection[str], old: Shapes, new: Shapes, numbers: Numbers, *, strict: bool = False
) -> dict[str, Pairing]:
    """Return how each of these tensors of the candidate is made, by the first rule whose sources are all there."""
    # A rule that does not fit them is an error where that is `strict`; one whose numbers are unknown, always.
    found: dict[str, Pairing] = {}
    ends = {rule: rule.tensor.rpartition(">")[2] for rule in rules}  # cheap to look for, and there are many names
    for name, rule in ((name, rule) for rule, end in ends.items() for name in names if name.endswith(end)):
        known = rule.fits(name) if name not in found else None
        if known is None:
            continue
        parts, groups = sources(rule, known, old)
        if parts and all(part in old for part in parts):
            try:
                taken = [_part(rule, part, old[part], known, numbers) for part in parts]
                one, there = _together(rule, name, taken, groups), new[name]
                # In the candidate's own shape where that holds as many elements in rows of the same length.
                whole, like = ([size for size in shape if size != 1] for shape in (one.shape, there))
                rows_alike = len(there) < 2 or one.shape[-1:] == there[-1:] or whole == like
                fits = math.prod(one.shape) == math.prod(there) and rows_alike
                found[name] = replace(one, shape=there) if fits else one
            except RuleError as problem:
                if strict or isinstance(problem, UnknownNumberError):
                    raise
    return found


def _together(rule: Rule, name: str, taken: Sequence[tuple[Part, Shape]], groups: int) -> Pairing:
    parts, shapes = [part for part, _ in taken], [shape or (1,) for _, shape in taken]
    if len({shape[1:] for shape in shapes}) > 1:
        listed = ", ".join(f"{part.source} {list(shape)}" for part, shape in zip(parts, shapes, strict=True))
        raise RuleError(f"{listed} cannot be put together")
    rows, tail = sum(shape[0] for shape in shapes), shapes[0][1:]
    shape = (groups, rows // groups, *tail) if groups else (rows, *tail)
    arithmetic = "+1" if rule.add == 1 else f"{rule.add:+}" if rule.add else ""
    whole = Pairing(candidate=name, parts=tuple(_interleaved(parts) if rule.cat else parts), shape=shape)
    return replace(whole, arithmetic=arithmetic, transform=rule.transform)


def _interleaved(parts: Sequence[Part]) -> Iterator[Part]:
    groups = {part.view[0] if part.view else 0 for part in parts}
    if len(groups) > 1 or not all(groups) or any(part.take or part.order for part in parts):
        raise RuleError("`cat: 1` needs a `view` whose first dimension is the same for all, and nothing besides")
    (many,) = groups
    if many * len(parts) > MAX_PARTS:
        raise RuleError(f"{many * len(parts)} pieces are more than the {MAX_PARTS} that are put together")
    for at in range(many):
        yield from (Part(source=part.source, view=part.view, take=(0, at, at + 1)) for part in parts)


def _part(rule: Rule, source: str, shape: Shape, known: Mapping[str, str], numbers: Numbers) -> tuple[Part, Shape]:
    if rule.transpose:
        if len(shape) < 2:
            raise RuleError(f"{source} has {len(shape)} dimensions, and cannot be transposed")
        return Part(source=source, transposed=True), (*shape[:-2], shape[-1], shape[-2])
    if not rule.view:
        return Part(source=source), shape
    rows, tail = (math.prod(shape[:-1]), shape[-1:]) if len(shape) > 1 else (math.prod(shape), ())
    sizes = {f"dim{axis}": size for axis, size in enumerate(shape)}
    view = _viewed(rule.view, rows, source, {**known, **{name: str(size) for name, size in sizes.items()}}, numbers)
    if rule.permute and sorted(rule.permute) != list(range(len(view))):
        raise RuleError(f"permute {list(rule.permute)} does not name each of the {len(view)} dimensions of the view")
    taken, take = _taken(rule.index, view, known) if rule.index else (view, None)
    if rule.permute and taken != view:
        raise RuleError("`permute` and an `index` of more than one dimension cannot stand together")
    kept = rows if take is None else rows // taken[take[0]] * (take[2] - take[1])
    return Part(source=source, view=taken, take=take, order=rule.permute), (kept, *tail)


def _viewed(view: Sequence[int | str], rows: int, source: str, known: Mapping[str, str], numbers: Numbers) -> Shape:
    found = []
    for one in view:
        word = _filled(str(one), known)
        word = known.get(word, word)
        number = int(word) if re.fullmatch(r"-?\d+", word) else numbers().get(word)
        if number is None:
            what = f"{word!r} is not known: no config.json or params.json beside either side says it"
            raise UnknownNumberError(f"{what}; the known words are heads, kv_heads, dim0, dim1 and on")
        found.append(number)
    rest = math.prod(size for size in found if size != -1)
    if found.count(-1) == 1 and rest > 0 and rows % rest == 0:
        found[found.index(-1)] = rows // rest
    if math.prod(found) != rows or min(found) < 1:
        raise RuleError(f"the {rows} rows of {source} cannot be viewed as {list(view)}")
    return tuple(found)


def _taken(index: Sequence[int | str], view: Shape, known: Mapping[str, str]) -> tuple[Shape, tuple[int, int, int]]:
    """Return the view with its leading dimensions of one index made one, and the one range that is taken of it."""
    ranges = []
    for word, size in ((_filled(str(one), known), size) for one, size in zip(index, view, strict=False)):
        found = RANGE.fullmatch(word)
        start, stop = (int(found[1] or 0), int(found[2] or size)) if found else (int(word), int(word) + 1)
        if not 0 <= start < stop <= size:
            raise RuleError(f"index {word} is beyond a dimension of {size}")
        ranges.append((start, stop))
    lead = next((at for at, (start, stop) in enumerate(ranges) if stop - start != 1), len(ranges))
    kept = [(at, one) for at, one in enumerate(ranges) if at >= lead and one != (0, view[at])]
    if len(index) > len(view) or len(kept) > 1 or (kept and lead and kept[0][0] != lead):
        raise RuleError(f"index {list(index)} of the view {list(view)} is not one stretch of one dimension")
    if not lead:
        axis, (start, stop) = kept[0] if kept else (0, ranges[0])
        return view, (axis, start, stop)
    first = 0
    for (start, _), size in zip(ranges[:lead], view, strict=False):
        first = first * size + start
    if not kept:
        return (math.prod(view[:lead]), *view[lead:]), (0, first, first + 1)
    (at, (start, stop)), size = kept[0], view[lead]
    return (math.prod(view[: at + 1]), *view[at + 1 :]), (0, first * size + start, first * size + stop)


# --- Layouts that are known -------------------------------------------------------------------------------------------

TABLE = "mapping/known_layouts"


@functools.cache
def built_in() -> tuple[Rule, ...]:
    """Return the rules of all layouts but encoders', in both directions."""
    read = table(TABLE)
    experts = (rule for row in read["experts"] for rule in _of_experts(**row))
    same = _given({"tensor": pair[at], "of": [pair[1 - at]]} for pair in read["same"] for at in (0, 1))
    turns = ("interleaved", "halves", (2, -1)), ("halves", "interleaved", (-1, 2))
    rotated = (
        Rule(tensor=row[new], of=(row[old],), view=(row["heads"], *view), permute=(0, 2, 1))
        for row in read["rotated"]
        for new, old, view in turns
    )
    return (*experts, *same, *rotated, *_given(read["fused"]))


@functools.cache
def encoders() -> tuple[Rule, ...]:
    """Return what the converter makes of encoders in an mmproj file."""
    return tuple(_given(table(TABLE)["encoders"]))


def projectors() -> tuple[str, ...]:
    """Return the projectors of mmproj files whose conversions were accepted."""
    return tuple(table(TABLE)["projectors"])


def unmapped(names: Iterable[str]) -> str:
    """Return what one of these names tells its side to be, and what to do: no rule maps it; nothing for other names."""
    rows: Mapping[str, str] = table(TABLE)["unmapped"]
    return next((said for known, said in rows.items() if any(re.fullmatch(known, name) for name in names)), "")


def buffer(name: str) -> str:
    """Return why a side may lack this tensor, which every model computes for itself, or nothing for any other."""
    return next((why for names, why in table(TABLE)["buffers"].items() if re.fullmatch(names, name)), "")


def _of_experts(*, apart: str, stacked: str, matrices: tuple[str, str, str]) -> Iterator[Rule]:
    gate, up, down = matrices
    both, down_all = f"{stacked}.gate_up_proj", f"{stacked}.down_proj"
    yield Rule(tensor=both, of=(f"{apart}.<each>.{gate}.weight", f"{apart}.<each>.{up}.weight"))
    yield Rule(tensor=down_all, of=(f"{apart}.<each>.{down}.weight",))
    one = f"{apart}.<expert>"
    for half, matrix in enumerate((gate, up)):
        yield Rule(tensor=f"{one}.{matrix}.weight", of=(both,), view=("dim0", 2, -1), index=("<expert>", half))
    yield Rule(tensor=f"{one}.{down}.weight", of=(down_all,), view=("dim0", -1), index=("<expert>",))


def _given(rows: Iterable[Mapping[str, Any]]) -> Iterator[Rule]:
    for row in rows:
        for end in ("weight", "bias") if row["tensor"].endswith("{}") else ("",):
            of = tuple(one.replace("{}", end) for one in row["of"])
            yield rule_of({**row, "tensor": row["tensor"].replace("{}", end), "of": of})
