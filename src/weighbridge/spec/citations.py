"""Citations, in the forms of `spec/amendment.md`: what a text says, and where the value behind it stands."""

import math
import re
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from weighbridge.core import BundleError, UsageError, at_pointer, dataclass, field, is_folder, loads
from weighbridge.core.project import local
from weighbridge.evidence import manifest
from weighbridge.evidence.bundle import BUNDLES, Bundle, unseal
from weighbridge.evidence.disk import read_regular
from weighbridge.evidence.review import Answer, rederivation_once

KEPT = Path("evidence") / BUNDLES
WIDEST = 200  # characters in which a value stands before its citation
WIDE = Context(prec=400)  # the whole range of a double, digit by digit
UNITS = "ms s µs us ns min h days bytes B kB KB MB GB TB KiB MiB GiB TiB nats bits tok/s tokens/s GB/s GiB/s FLOP/s "
UNITS += "TFLOP/s W °C % files"
UNIT = rf"(?:{'|'.join(map(re.escape, sorted(UNITS.split(), key=len, reverse=True)))})(?![\w/])"
NUMBER = r"(?<![\w.,/-])[-+]?\d[\d,_]*(?:\.\d+)?(?:[eE][-+]?\d+)?"
BRACKET = re.compile(
    r"\[(?:ev:(?P<id>[0-9a-f]{12,64})(?:/(?P<file>[A-Za-z0-9._/-]+))?(?:#(?P<pointer>(?:/[^\]\s]*)?))?"
    r"|=(?P<formula>[^\]\n]+)|files:(?P<files>[^\]\n]+))\]"
)
COUNTED = rf"{NUMBER} [A-Z]+_[A-Z_]+\b"  # "16 BYTES_EQUAL", where the evidence says so
NAMED = rf"\b(?!{UNIT})(?:[A-Z]{{2,}}|(?<!\d )[A-Z]+_[A-Z_]+)\b"
BEFORE = re.compile(  # the last value, its unit or two words of what it counts, and a space
    rf".*(?P<value>`(?P<quoted>[^`\n]*)`|(?P<bare>{COUNTED}|{NUMBER}|{NAMED}))"
    rf"(?:[ \"“]*(?P<unit>{UNIT})[\"”]?|(?: [A-Za-z][\w-]*){{1,2}})? $"
)
AFTER = re.compile(rf" (?P<unit>{UNIT})")
FORMULA = re.compile(r"(?P<log>ln|log2|log10)[ (]*(?P<of>\d[\d,_]*(?:\.\d+)?)\)?")
LOGARITHMS = {"ln": (math.log, "nats"), "log2": (math.log2, "bits"), "log10": (math.log10, "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A printed text with its unit, and where its value stands: in a bundle, in a formula, or in a count of files."""

    text: str  # "" where nothing stands before it
    unit: str = ""
    id: str = ""
    file: str = manifest.VERDICTS
    pointer: str | None = None  # of a bundle that is cited as a whole
    formula: str = ""
    files: str = ""
    span: tuple[int, int] = field(default=(0, 0), compare=False)


def cite(bundle: Bundle, pointer: str, value: object, file: str = "") -> str:
    """Print a value with its citation; a number to six significant digits at most."""
    named = f"/{file}" if file else ""
    return f"`{printed(value)}` [ev:{bundle.id[:12]}{named}#{quote(pointer, safe='/~')}]"


def printed(value: object) -> str:
    """Print a value as a person reads it, and as `agrees` accepts it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, float) and math.isfinite(value):
        return f"{Decimal(repr(value)):.6g}"
    return str(value).replace("`", "'").replace("|", "¦").replace("\n", " ")


def citations(text: str) -> tuple[Citation, ...]:
    """Find every citation in a text."""
    found = []
    for match in BRACKET.finditer(text):
        widest = max(0, match.start() - WIDEST)
        line = max(text.rfind("\n", widest, match.start()) + 1, widest)
        before, after = BEFORE.match(text[line : match.start()]), AFTER.match(text, match.end())
        unit = (before["unit"] if before else None) or (after["unit"] if after else None) or ""
        shown = (before["quoted"] if before["quoted"] is not None else before["bare"]) if before else ""
        given = {name: match[name] for name in ("id", "file", "formula", "files") if match[name]}
        pointer = None if match["pointer"] is None else unquote(match["pointer"])
        span = (line + before.start("value") if before else match.start(), match.end())
        found.append(Citation(text=shown, unit=unit, pointer=pointer, span=span, **given))
    return tuple(found)


def resolve(bundle: Bundle, citation: Citation) -> Any:
    """Return the cited value from the bundle's bytes, or raise `bad-pointer` where there is none."""
    if not manifest.NAME.fullmatch(citation.file):
        raise BundleError("bad-pointer", f"{citation.file!r} is no name for a file of a bundle", where=str(bundle.path))
    data = read_regular(bundle.path / citation.file, citation.file, manifest.MAX_FILE)
    try:
        return at_pointer(loads(data, where=citation.file), citation.pointer or "")
    except KeyError:
        raise BundleError("bad-pointer", f"has nothing at {citation.pointer}", where=citation.file) from None


def computed(formula: str) -> tuple[float, str] | None:
    """Return the value of a formula and its unit, as of `ln 151936`; None where it is none that is known here."""
    match = FORMULA.fullmatch(formula.strip())
    if match is None or not (number := float(match["of"].replace(",", "").replace("_", ""))) > 0:
        return None
    logarithm, unit = LOGARITHMS[match["log"]]
    return logarithm(number), unit


def agrees(text: str, value: object) -> bool:
    """Return whether a printed text equals a value to the printed digits, rounded half up or half to even."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return text == printed(value)
    try:
        shown, exact = Decimal(text.replace(",", "")), Decimal(repr(value))
        last = Decimal(1).scaleb(int(shown.as_tuple().exponent), WIDE)
        return shown in (exact.quantize(last, rounding, WIDE) for rounding in (ROUND_HALF_EVEN, ROUND_HALF_UP))
    except (InvalidOperation, ValueError):
        return False


def _stores() -> tuple[Path, ...]:
    return KEPT, local() / BUNDLES


def stored() -> Iterator[Path]:
    """Yield the folder of every bundle that is kept here."""
    for store in _stores():
        yield from sorted(store.iterdir()) if store.is_dir() else ()


def find(bundle: str) -> Path:
    """Return a bundle's folder by its path or first digits; raise `unknown-bundle` or `ambiguous-bundle`."""
    if is_folder(Path(bundle)):
        return Path(bundle)
    known = list(stored()) if len(bundle) >= 6 else []
    found = [path for path in known if path.name.rpartition("-")[2].startswith(bundle[:12])]
    if len({path.name for path in found}) == 1:
        return found[0]
    where = ", ".join(map(str, _stores()))
    if not found:
        remedy = "restore it from the history, or name its folder or at least 6 digits of its id"
        raise UsageError("unknown-bundle", f"no bundle {bundle!r}", where=where, remedy=remedy)
    what = f"{len(found)} bundles begin with {bundle!r}"
    raise UsageError("ambiguous-bundle", what, where=where, remedy="give more digits")


@dataclass(frozen=True, slots=True)
class Bundles:
    """The bundles that texts cite, each found, unsealed and judged again once."""

    found: dict[str, Bundle] = field(default_factory=dict)
    judged: dict[str, Answer] = field(default_factory=dict)

    def get(self, id_: str) -> Bundle:
        """Return a bundle by 12 digits of its id or more, or raise why it is not here as it was sealed."""
        if id_[:12] not in self.found:
            try:
                self.found[id_[:12]] = unseal(find(id_[:12]))
            except BundleError as problem:
                what = f"bundle {id_[:12]}: {problem.where} {problem.what}"
                raise BundleError(problem.code, what, where=problem.where, remedy=problem.remedy) from None
        bundle = self.found[id_[:12]]
        if not bundle.id.startswith(id_):
            raise UsageError("unknown-bundle", f"no bundle {id_!r}; there is {bundle.id[: len(id_)]}")
        return bundle

    def rederivation(self, id_: str) -> Answer:
        """Return whether the verdicts of a bundle follow from what it measured, or raise why it is not here."""
        return rederivation_once(self.get(id_), self.judged)
