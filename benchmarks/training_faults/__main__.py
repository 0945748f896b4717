"""Train tiny programs with faults laid in, and without; say which gate catches which, and what alarms without cause.

    python -m benchmarks.training_faults --programs gpt conv fine-tune ranks --seeds 0 1 --channels default|all

Every fault runs once a seed, and every harmless variant once a seed of `--clean-seeds`. A fault is caught by a gate
that FAILs, and that does not on most clean runs of its program; `after` is the most steps, over the seeds, between
the first step that the fault touches and the last one that the gate must see to fail, by bisection of the log.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from benchmarks.training_faults import ranks
from benchmarks.training_faults.programs import PROGRAMS, Answer, Case, answered, fault_cases, harmless_cases
from benchmarks.training_faults.tables import alarm_lines, fault_lines, tally, useless

warnings.filterwarnings("ignore", module="torch|transformers|accelerate")
CONTRACTS = (str(Path(__file__).parents[2] / "contracts" / "training-run.yaml"),)
OF_RANKS = (str(Path(__file__).with_name("ranks.yaml")),)


def main() -> None:
    given = arguments()
    plain = [name for name in given.programs if name in PROGRAMS]
    wrong = [] if given.no_faults else fault_cases(plain, given.seeds, given.faults)
    right = harmless_cases(plain, given.clean_seeds, given.variants)
    answers = every(wrong + right, given)
    if "ranks" in given.programs:
        answers += ranks.answers(given, progress=told)
    faulty = [one for one in answers if one.case.onset is not None]
    clean = [one for one in answers if one.case.onset is None]
    not_these = useless([one for one in clean if one.case.name == "clean"])
    for program, gates in not_these.items():
        print(f"{program}: {', '.join(sorted(gates))} fail on most clean runs, and count for no fault")
    for line in (*fault_lines(faulty, not_these), "", *tally(faulty, not_these), "", *alarm_lines(clean)):
        print(line)
    if given.json:
        Path(given.json).write_text(json.dumps([one.as_json() for one in answers], indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", nargs="+", default=["gpt"], choices=[*PROGRAMS, "ranks"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--clean-seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--faults", nargs="*", default=[], help="only these")
    parser.add_argument("--no-faults", action="store_true", help="harmless runs only")
    parser.add_argument("--variants", nargs="*", default=[], help="only these harmless variants")
    parser.add_argument("--channels", default="default", choices=["default", "all"])
    parser.add_argument("--contract", nargs="+", default=CONTRACTS)
    parser.add_argument("--of-ranks", nargs="*", default=OF_RANKS, help="contracts of a whole run of several ranks")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", default="")
    parser.add_argument("--keep", type=Path, help="a folder for the recorded runs")
    return parser.parse_args()


def every(cases: Sequence[Case], given: argparse.Namespace) -> list[Answer]:
    found = []
    if given.jobs == 1:
        for case in cases:
            found.append(answered(case, given.contract, given.channels, given.keep))
            told(found[-1])
        return found
    with concurrent.futures.ProcessPoolExecutor(given.jobs) as pool:
        waiting = [pool.submit(answered, case, given.contract, given.channels, given.keep) for case in cases]
        for one in waiting:
            found.append(one.result())
            told(found[-1])
    return found


def told(answer: Answer) -> None:
    by = ", ".join(f"{one.kind} {one.code} +{answer.steps.get(one.gate)}" for one in answer.failed)
    case = answer.case
    losses = f"loss {answer.first_loss} to {answer.last_loss}"
    print(f"{case.program} {case.name} {case.seed}: {by or '-'} ({losses}, {answer.seconds} s) {answer.crashed}",
          file=sys.stderr, flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
