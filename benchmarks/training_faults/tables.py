"""Tables of what was caught, what was missed, and what was alarmed about without cause."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from benchmarks.training_faults.programs import Answer

HELD_BACK = frozenset({"not-ended"})  # what no clean run is blocked by
ADVICE = {"advisory": " (advice)"}
Gates = dict[str, set[str]]  # by program: gates that fail where nothing is wrong, and so catch nothing


def bound(alarms: int, runs: int, confidence: float = 0.95) -> float:
    """Return the upper bound of a rate (Clopper and Pearson), by bisection."""
    if alarms >= runs:
        return 1.0
    low, high = alarms / runs, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        low, high = (rate, high) if at_most(alarms, runs, rate) > 1 - confidence else (low, rate)
    return high


def at_most(alarms: int, runs: int, rate: float) -> float:
    """Return how likely as few alarms or fewer are at a rate."""
    chance = (1 - rate) ** runs
    total = chance
    for count in range(1, alarms + 1):
        chance *= (runs - count + 1) / count * rate / (1 - rate)
        total += chance
    return total


def useless(clean: Sequence[Answer]) -> Gates:
    """Return the gates that fail on most clean runs of a program."""
    found: Gates = defaultdict(set)
    counts = Counter((one.case.program, said.gate) for one in clean for said in one.failed)
    runs = Counter(one.case.program for one in clean)
    for (program, gate), count in counts.items():
        if 2 * count >= runs[program]:
            found[program].add(gate)
    return found


def caught_by(answer: Answer, not_these: Gates) -> list[tuple[int | None, str]]:
    """Return what failed, the soonest first: steps after the onset, and `kind code`."""
    mine = [one for one in answer.failed if one.gate not in not_these.get(answer.case.program, set())]
    found = [(answer.steps.get(one.gate), f"{one.kind} `{one.code}`{ADVICE.get(one.severity, '')}") for one in mine]
    return sorted(found, key=lambda pair: (pair[0] is None, pair[0] or 0))


def first_by(found: Sequence[Sequence[tuple[int | None, str]]]) -> tuple[str, str]:
    """Return what caught a fault first in most seeds, and after how many steps at most."""
    hit = [one[0] for one in found if one]
    if not hit:
        return "", ""
    waits = [wait for wait, _ in hit if wait is not None]
    return Counter(said for _, said in hit).most_common(1)[0][0], str(max(waits)) if len(waits) == len(hit) else "end"


def fault_lines(answers: Sequence[Answer], not_these: Gates) -> Iterator[str]:
    """Write a row a fault and program, over all seeds."""
    rows: dict[tuple[str, str, str], list[Answer]] = defaultdict(list)
    for one in answers:
        rows[one.case.group, one.case.name, one.case.program].append(one)
    yield "| | fault | program | caught | first by | after | also by |"
    yield "|---|---|---|---|---|---|---|"
    for (group, name, program), mine in rows.items():
        found = [caught_by(one, not_these) for one in mine]
        first, after = first_by(found)
        others = sorted({said.split(" ")[0] for one in found for _, said in one} - {first.split(" ")[0]})
        yield (
            f"| {group} | {name.replace('_', ' ')} | {program} | {sum(map(bool, found))} of {len(found)} "
            f"| {first or f'— {blocked(mine)}'} | {after} | {', '.join(others)} |"
        )


def held_back(answers: Sequence[Answer], not_these: Gates) -> Iterator[str]:
    """Write which runs are not caught, and not green either: a gate does not look that does on clean runs."""
    for one in answers:
        if not caught_by(one, not_these) and (codes := {said.code for said in one.said if said.code in HELD_BACK}):
            yield f"not caught, and BLOCKED by `{'`, `'.join(sorted(codes))}`: {one.case.name} of {one.case.program}"


def blocked(answers: Sequence[Answer]) -> str:
    said = Counter(f"{one.kind} {one.outcome} `{one.code}`" for answer in answers for one in answer.said
                   if one.outcome in ("BLOCKED", "ERROR"))  # fmt: skip
    crashed = next((one.crashed for one in answers if one.crashed), "")
    return crashed or "; ".join(text for text, _ in said.most_common(2)) or "all passed"


def tally(answers: Sequence[Answer], not_these: Gates) -> Iterator[str]:
    """Write how many faults were caught, by program, by group and by seed."""
    for by in ("program", "group", "seed"):
        count: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for one in answers:
            key = str(getattr(one.case, by))
            total[key] += 1
            count[key] += bool(caught_by(one, not_these))
        yield f"by {by}: " + ", ".join(f"{key} {count[key]} of {total[key]}" for key in total)
    hit = sum(bool(caught_by(one, not_these)) for one in answers)
    names = {one.case.name for one in answers}
    missed = {one.case.name for one in answers if not caught_by(one, not_these)}
    share = f"{100 * hit / max(len(answers), 1):.1f} %"
    yield f"caught: {hit} of {len(answers)} runs ({share}); {len(names - missed)} of {len(names)} faults in every run"


def alarm_lines(answers: Sequence[Answer]) -> Iterator[str]:
    """Write each false alarm, and the rates with their bounds."""
    alarmed = [one for one in answers if one.failed or one.crashed]
    for one in alarmed:
        for said in one.failed:
            yield (
                f"false alarm: {one.case.program} {one.case.name} seed {one.case.seed}: {said.gate} {said.kind} "
                f"`{said.code}` at {said.place}"
            )
        if one.crashed:
            yield f"crashed: {one.case.program} {one.case.name} seed {one.case.seed}: {one.crashed}"
    yield rate_line("false alarms", len(alarmed), len(answers))
    red = [one for one in answers if any(said.outcome in ("BLOCKED", "ERROR") for said in one.said)]
    yield rate_line("runs with a gate that is BLOCKED or an ERROR", len(red), len(answers))
    stuck = Counter((one.case.program, said.kind, said.code) for one in red for said in one.said
                    if said.outcome in ("BLOCKED", "ERROR"))  # fmt: skip
    for (program, kind, code), count in stuck.most_common():
        yield f"  {program}: {kind} `{code}` in {count}"


def rate_line(what: str, count: int, of: int) -> str:
    return f"{what}: {count} of {of}" + (f", at most {100 * bound(count, of):.1f} % at 95 %" if of else "")
