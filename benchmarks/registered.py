"""Say of every class that llama.cpp's converter registers for text whether its conversions were compared here.

Takes what `families.py` and `conversions.py` beside it printed:

    python -m benchmarks.registered --converter …/vendor/llama.cpp --made FILE --converted FILE > registered

Prints one line a state: the state, how many classes, and each with what there is to say of it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.families import FAMILIES

ACCEPTED, REFUSED, NO_RULE = "accepted", "refused", "no rule"
SHOWN = 120
STATES = {
    ACCEPTED: "compared, and accepted",
    REFUSED: "compared, and refused in some family of it",
    NO_RULE: "compared, and some tensor has no rule",
    "not converted": "not written by the converter from what transformers saves",
    "not built": "not built here by transformers",
    "no class": "no class of transformers",
    "not tried": "not tried",
}


def registered(converter: Path) -> list[str]:
    """Return the names that the converter registers for text models."""
    sys.path[:0] = [str(converter), str(converter / "gguf-py")]
    import conversion  # type: ignore[import-not-found]

    return sorted(conversion.TEXT_MODEL_MAP)


def families_of(name: str) -> list[str]:
    """Return the families that are of a class, or are converted under its name."""
    return [one for one, family in FAMILIES.items() if name in (family.keys.get("architectures") or (family.kind,))]


def state(name: str, made: Sequence[str], converted: Sequence[str]) -> tuple[str, str]:
    """Return what became of a class, and what there is to say of it."""
    import transformers

    own = families_of(name)
    if not own:
        return ("not tried" if hasattr(transformers, name) else "no class"), ""
    for line in made:
        family, _, told = line.split(" ", 2)
        if family in own and told.startswith("not "):
            kind, _, why = told.partition(": ")
            return kind, why if len(why) <= SHOWN else why[:SHOWN] + "…"
    outcomes = {line.split()[4] for line in converted if line.split()[:1] and line.split()[0] in own}
    worst = {"FAIL": REFUSED, "BLOCKED": NO_RULE}
    return next(
        (kind for one, kind in worst.items() if one in outcomes), ACCEPTED if outcomes else "not tried"
    ), ", ".join(own)


def lines(names: Sequence[str], made: Sequence[str], converted: Sequence[str]) -> Iterator[str]:
    """Yield a line a state."""
    found = {name: state(name, made, converted) for name in names}
    for kind, words in STATES.items():
        own = {name: why for name, (one, why) in found.items() if one == kind}
        says = kind not in (ACCEPTED, "no class", "not tried")
        listed = ", ".join(f"`{name}` ({why})" if says else f"`{name}`" for name, why in own.items())
        if own:
            yield f"| {words} | {len(own)} | {listed} |"
    yield f"| all | {len(found)} | |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("--converter", "--made", "--converted"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    made, converted = (path.read_text(encoding="utf-8").splitlines() for path in (given.made, given.converted))
    print("\n".join(lines(registered(given.converter), made, converted)))


if __name__ == "__main__":
    main()
