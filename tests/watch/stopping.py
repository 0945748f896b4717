"""The witness with one judge: `python -m tests.watch.stopping RUN GRACE first|never [--resume] -- CMD…`."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from weighbridge.watch.judges import Judges
from weighbridge.watch.launch import go_on_guarded
from weighbridge.watch.witness import Asked, Witness


@dataclass(frozen=True)
class NotFinite:
    gate: str
    instance: str
    step: int | None
    code: str
    why: str


class Finite:
    """Every loss of every log below a run is a number."""

    def __init__(self, run: Path) -> None:
        self.run, self.read = run, dict[Path, int]()
        self.advice: list[Any] = []
        self.unconfirmed: list[str] = []
        self.notes: list[str] = []
        self.stand_still: Callable[[], object] = lambda: None

    def late(self) -> str:
        return ""

    def files(self) -> dict[Path, Any]:
        return {}

    def look(self, now_s: float) -> NotFinite | None:
        if os.environ.get("JUDGE_BREAKS"):
            raise ValueError("as asked for")
        for path in self.run.rglob("steps.jsonl"):
            with path.open("rb") as file:
                file.seek(self.read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self.read[path] = self.read.get(path, 0) + len(line)
                    row = json.loads(line)
                    if not math.isfinite(row["loss"]):
                        return NotFinite("GATE-FINITE", "default", row["step"], "not-finite", "loss is nan")
        return None


def main() -> None:
    at = sys.argv.index("--")
    run, grace, stop_at, *more = sys.argv[1:at]
    go_on_guarded()
    asked = Asked(
        run=Path(run),
        command=tuple(sys.argv[at + 1 :]),
        grace_s=float(grace),
        stops=stop_at == "first",
        resume="--resume" in more,
    )
    ended = Witness(asked, cast(Judges, Finite(Path(run))), lambda text: print(text, file=sys.stderr)).run()
    print(f"unsealed: {ended.unsealed}" if ended.unsealed else "sealed")
    sys.exit(ended.exit)


if __name__ == "__main__":
    main()
