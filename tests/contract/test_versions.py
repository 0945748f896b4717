from __future__ import annotations

from pathlib import Path

from weighbridge.contract.load import LoadedContract, load_contract
from weighbridge.contract.resolved import digests
from weighbridge.contract.versions import reused

HEAD = "weighbridge: contract/v0\nid: c\nversion: 1.0.0\ntitle: {}\nowner: o\n"


def loaded(folder: Path, name: str, title: str) -> tuple[LoadedContract, str]:
    (folder / name).write_text(HEAD.format(title))
    contract = load_contract(folder / name)
    return contract, digests(contract.contract).whole


def test_one_id_and_version_with_two_contents_is_told_at_the_version(tmp_path: Path) -> None:
    first, second = loaded(tmp_path, "a.yaml", "one"), loaded(tmp_path, "b.yaml", "two")
    assert [str(found).replace(f"{tmp_path}/", "") for found in reused([first, second], {})] == [
        "b.yaml:3:10: reused-version c 1.0.0 has another content in a.yaml\n  raise the version"
    ]


def test_a_copy_with_other_comments_is_the_same_content(tmp_path: Path) -> None:
    first = loaded(tmp_path, "a.yaml", "one")
    second = loaded(tmp_path, "b.yaml", "one # more")
    assert list(reused([first, second], {})) == []


def test_a_version_that_the_ledger_knows_with_another_content_is_told(tmp_path: Path) -> None:
    one = loaded(tmp_path, "a.yaml", "one")
    assert list(reused([one], {("c", "1.0.0"): one[1]})) == []
    (found,) = reused([one], {("c", "1.0.0"): "0" * 64})
    assert found.what == "c 1.0.0 has another content in the ledger"
