"""Each rank writes a directory of its own, and learns what it learns unrecorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for library in ("torch", "transformers", "accelerate", "lightning"):
    pytest.importorskip(library)

pytestmark = pytest.mark.exhaustive
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    ranks = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        (sys.executable, *ranks, "-m", "tests.integrations.ranks", str(folder)), cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "ACCELERATE_USE_CPU": "1"}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-8000:]
    return folder


@pytest.mark.parametrize("framework", ["transformers", "accelerate", "lightning"])
def test_two_ranks_learn_the_same_and_agree_on_the_gradients_that_arrived(framework: str, trained: Path) -> None:
    found = []
    for rank in (0, 1):
        read = [(trained / f"{framework}-{how}-{rank}").read_text() for how in ("alone", "recorded")]
        assert read[0] == read[1]
        directory = trained / framework / f"rank-{rank}"
        found.append([json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()])
        assert "recorder-failure" not in (directory / "events.jsonl").read_text()
        assert json.loads((directory / "run.json").read_text())["world_size"] == 2
    first, second = found
    assert len(first) == len(second) >= 4
    assert [row["grad_norm"] for row in first] == [row["grad_norm"] for row in second]
    assert all(row["grad_norm"] > 0.1 > row["grad_norm_used"] * 0.999 for row in (*first, *second))
    assert [row["loss"] for row in first] != [row["loss"] for row in second]
