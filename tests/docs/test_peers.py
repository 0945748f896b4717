"""The page about other tools is what its script writes: its files, its tools, and no word about what none was asked."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import peers

PAGE = (Path(__file__).resolve().parents[2] / "benchmarks" / "peers.md").read_text("utf-8")


def test_every_tool_stands_with_its_version_and_every_file_with_an_answer_of_each() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")
    ]
    assert [row[0].split()[0] for row in rows if len(row) == 7 and re.search(r" \d+\.\d+", row[0])] == [
        peer.name for peer in peers.PEERS
    ]
    printed = {row[0]: row[1:] for row in rows}
    for case in peers.CASES:
        state, *answers = printed[case.name]
        assert state == ("sound" if case.sound else "wrong")
        for peer, answer in zip(peers.PEERS, answers, strict=True):
            assert (peer.ask(case) is None) == (answer == "–")


def test_our_own_answers_are_right() -> None:
    for case in peers.CASES:
        (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| {case.name} |"))
        assert row.split(" | ")[2].startswith("accepted (0)" if case.sound else "seen (")
