"""What a mapping file can say, beside what NumPy makes of the same; and what it says wrong, by its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401 -- a fixture
from tests.comparison.conversions import Arrays
from tests.formats.files import safetensors

WIDTH, INNER, GROUPS, EACH = 6, 4, 2, 3  # and of each group of heads, so many rows of queries


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


SOURCE: Arrays = {
    "l.0.q": drawn(GROUPS * EACH, WIDTH), "l.0.k": drawn(GROUPS, WIDTH), "l.0.v": drawn(GROUPS, WIDTH) + 1,
    "l.0.gate": drawn(INNER, WIDTH), "l.0.up": drawn(INNER, WIDTH) + 1, "norm": drawn(WIDTH),
    **{f"l.0.e.{one}.w": drawn(INNER, WIDTH) + one for one in range(11)},
    "qkv": drawn(GROUPS * (EACH + 2), WIDTH), "stack": drawn(3, 2 * INNER, WIDTH),
}  # fmt: skip
RULES: dict[str, tuple[str, str, Callable[[Arrays], Any]]] = {
    "a permutation": (
        "l.0.wq",
        "{tensor: l.<layer>.wq, of: [l.<layer>.q], view: [3, 2, -1], permute: [1, 0, 2]}",
        lambda has: has["l.0.q"].reshape(3, 2, WIDTH).transpose(1, 0, 2).reshape(-1, WIDTH),
    ),
    "a fusion": (
        "l.0.gate_up", "{tensor: l.<layer>.gate_up, of: [l.<layer>.gate, l.<layer>.up]}",
        lambda has: np.concatenate([has["l.0.gate"], has["l.0.up"]]),
    ),
    "a fusion, group for group": (
        "l.0.qkv",
        "{tensor: l.<layer>.qkv, of: [l.<layer>.q, l.<layer>.k, l.<layer>.v], view: [2, -1], cat: 1}",
        lambda has: np.hstack([has[f"l.0.{one}"].reshape(GROUPS, -1, WIDTH) for one in "qkv"]).reshape(-1, WIDTH),
    ),
    "a split": (
        "q", '{tensor: q, of: [qkv], view: [2, 5], index: [":", "0:3"]}',
        lambda has: has["qkv"].reshape(GROUPS, -1, WIDTH)[:, :EACH].reshape(-1, WIDTH),
    ),
    "a split of a stack": (
        "e.2.up", '{tensor: e.<one>.up, of: [stack], view: [dim0, 2, -1], index: [<one>, 1]}',
        lambda has: has["stack"][2, INNER:],
    ),
    "a stack, in the order of numbers": (
        "l.0.e", "{tensor: l.<layer>.e, of: [l.<layer>.e.<each>.w]}",
        lambda has: np.stack([has[f"l.0.e.{one}.w"] for one in range(11)]),
    ),
    "a transpose": ("t", "{tensor: t, of: [l.0.gate], transpose: true}", lambda has: has["l.0.gate"].T),
    "an added constant": ("n", "{tensor: n, of: [norm], add: -0.5}", lambda has: has["norm"] - np.float32(0.5)),
}  # fmt: skip


def written(path: Path, arrays: Arrays) -> Path:
    entries = {name: ("F32", values.shape, np.ascontiguousarray(values).tobytes()) for name, values in arrays.items()}
    return safetensors(path, entries)


@pytest.mark.parametrize("what", RULES)
def test_a_mapping_file_says_it_and_one_wrong_bit_is_found(cli: Cli, workplace: Path, what: str) -> None:  # noqa: F811
    name, rule, make = RULES[what]
    made = np.array(make(SOURCE), order="C")
    (workplace / "map.yaml").write_text(f"make:\n  - {rule}\n")
    (workplace / "meant.yaml").write_text("policy: lossless\nallow_missing: ['*']\n")
    source = written(workplace / "a", SOURCE)
    asked = "--map", "map.yaml", "--policy", "meant.yaml"
    right = {name: made, "stack": SOURCE["stack"]}
    assert cli("compare", source, written(workplace / "b", right), *asked).code == 0
    made.reshape(-1).view(np.uint32)[-1] ^= 1
    ended = cli("compare", source, written(workplace / "b", right), *asked)
    assert (ended.code, ended.lines[-1].startswith("DIFFERENT: 1 of ")) == (1, True)


WRONG = {
    "{tensor: x, off: [a]}": "map.yaml:2:17: map unknown key 'off'",
    "{tensor: x, of: []}": "map.yaml:2:21: map a list of 0, at least 1 needed",
    "{tensor: y, of: [l.0.q]}": "map.yaml:2:5: map no tensor of the import is called y",
    "{tensor: x, of: [l.0.qq]}": "map.yaml:2:5: map x is to be made of l.0.qq, not all of which are in the source",
    "{tensor: x, of: [l.0.q], view: [4, -1]}": "map.yaml:2:5: map the 6 rows of l.0.q cannot be viewed as [4, -1]",
    "{tensor: x, of: [l.0.q], view: [heads, -1]}": "map.yaml:2:5: map 'heads' is not known",
    "{tensor: x, of: [l.0.q], view: [2, 3], permute: [0, 0]}": "map.yaml:2:5: map permute [0, 0] does not name each",
    "{tensor: x, of: [l.0.q], view: [2, 3], index: [2]}": "map.yaml:2:5: map index 2 is beyond a dimension of 2",
    '{tensor: x, of: [stack], view: [3, 2, 4], index: ["0:2", 0]}': "map.yaml:2:5: map index ['0:2', 0] of the view",
    "{tensor: x, of: [l.0.q, norm]}": "map.yaml:2:5: map l.0.q [6, 6], norm [6] cannot be put together",
    "{tensor: x, of: [norm], transpose: true}": "map.yaml:2:5: map norm has 1 dimensions, and cannot be transposed",
    "{tensor: x, of: [l.0.k, l.0.q], cat: 1}": "map.yaml:2:5: map `cat: 1` needs a `view`",
}


@pytest.mark.parametrize("rule", WRONG)
def test_a_wrong_rule_is_reported_by_its_line(cli: Cli, workplace: Path, rule: str) -> None:  # noqa: F811
    (workplace / "map.yaml").write_text(f"make:\n  - {rule}\n")
    ended = cli(
        "compare",
        written(workplace / "a", SOURCE),
        written(workplace / "b", {"x": SOURCE["l.0.q"]}),
        "--map",
        "map.yaml",
    )
    assert ended.code == 2
    assert WRONG[rule] in ended.err
