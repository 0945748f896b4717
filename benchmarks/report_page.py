"""The page of a long run: 1,000,000 steps of 8 columns and norms of 48 layers at 2,000 steps; bytes and CPU time.

What is read is apart: the run for its courses, `layers.jsonl`. The page may take 700 KB, and drawing it a second.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import sys
import tempfile
import time
from array import array
from pathlib import Path

from weighbridge.core import Measurement
from weighbridge.evaluation.around_step import layers_of
from weighbridge.evaluation.verification import VerifyRequest, verify
from weighbridge.page.one_file import page
from weighbridge.page.sources import sources
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import StepCourse
from weighbridge.run_logs.log_table import Cells
from weighbridge.verifiers.step_course import measure
from weighbridge.views.run import RunView, open_run

STEPS, COLUMNS, LAYERS, LOGGED = 1_000_000, 8, 48, 2_000
BUDGET_BYTES, BUDGET_SECONDS = 700_000, 1.0
SPIKE = 654_321


def long_run() -> RunView:
    """Return a run of noisy columns, one of which has a spike of one step."""
    drawn, cells = random.Random(7), {}
    for index in range(-1, COLUMNS):
        one = Cells(STEPS)
        values = range(STEPS) if index < 0 else (drawn.gauss(3, 0.2) + 4 * 0.99999**step for step in range(STEPS))
        one.values, one.state = array("d", values), bytearray([1]) * STEPS
        cells["step" if index < 0 else "loss" if index == 0 else f"column_{index}"] = one
    cells["loss"].values[SPIKE] = 25.0
    return RunView(rows=STEPS, cells=cells, logged_as={name: name for name in cells})


def short_run(folder: Path) -> Path:
    """Write a run of some steps with the norms of all layers."""
    drawn = random.Random(7)
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"schema": "weighbridge.run/v0"}))
    rows = ({"step": step, "loss": 4 - step / 200 + drawn.random() / 10} for step in range(200))
    (folder / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "events.jsonl").write_text(json.dumps({"event": "end", "step": 200, "steps": 200, "by": ""}) + "\n")
    with (folder / "layers.jsonl").open("w") as file:
        for step in range(LOGGED):
            for layer in range(LAYERS):
                norm = drawn.lognormvariate(-layer / 10, 0.3)
                row = {
                    "step": 500 * step,
                    "name": f"blocks.{layer}.w",
                    "grad": norm,
                    "weight": 1.0,
                    "update": norm / 1e3,
                }
                file.write(f"{json.dumps(row)}\n")
    return folder


def main() -> None:
    """Measure it once, and fail where it is over its budget."""
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        run, kept = short_run(Path("run")), Path("kept")
        asked = VerifyRequest(contracts=("builtin:training-log",), subjects=(f"run={run}",), evidence=kept, ledger=kept)
        verify(asked, lambda _text: None)
        given = sources(list((kept / "bundles").iterdir()), run, None)
        view, began = long_run(), time.process_time()
        courses = measure((view,), {})
        sealing = time.process_time() - began
        assert isinstance(courses, Measurement)
        (bundle,) = given.bundles
        measured = {**bundle.measured, "step_course.run.default": courses}
        given = dataclasses.replace(given, bundles=(dataclasses.replace(bundle, measured=measured),))
        began = time.process_time()
        layers_of(open_run(run))
        reading = time.process_time() - began
        began = time.process_time()
        data = page(given)
        drawing = time.process_time() - began - reading
    loss = next(row for row in rows_of(courses, StepCourse) if row.column == "loss")
    spike = max(filter(None, loss.greatest))
    print(f"courses of {STEPS:,} steps, {COLUMNS} columns: {sealing:.2f} s; a spike of one step: {spike}")
    print(f"layers.jsonl of {LAYERS} x {LOGGED:,} norms read: {reading:.2f} s")
    print(f"page: {len(data):,} of {BUDGET_BYTES:,} bytes, drawn in {drawing:.2f} of {BUDGET_SECONDS} s")
    sys.exit(len(data) > BUDGET_BYTES or drawing > BUDGET_SECONDS)


if __name__ == "__main__":
    main()
