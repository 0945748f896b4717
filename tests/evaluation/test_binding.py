"""Binding: what stands for which subject, on which instance, and who may run what."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from weighbridge.core.errors import UsageError
from weighbridge.core.model import Contract, GateDecl, Origin, SubjectDecl, SubjectKind
from weighbridge.evaluation.binding import Binding, bind, find, instances, origin

CHECKPOINT = SubjectDecl(kind=SubjectKind.CHECKPOINT)
GATE = GateDecl(id="G", kind="byte-identity", title="t", subjects={"source": "source", "candidate": "import"})


def contract(**subjects: SubjectDecl) -> Contract:
    return Contract(id="c", version="1.0.0", title="t", owner="o", subjects=subjects, gates=(GATE,))


TWO = contract(source=CHECKPOINT, **{"import": CHECKPOINT})


def bound(*arguments: str, of: Contract = TWO, base: Path = Path()) -> tuple[Binding, ...]:
    return bind(of, base, arguments)


def test_a_subject_bound_by_hand_is_the_default_instance() -> None:
    (item,) = bound("source=a b.safetensors")
    assert (item.subject, item.instance, item.target, item.by_hand) == ("source", "default", "a b.safetensors", True)


def test_an_instance_falls_back_to_what_is_bound_for_all() -> None:
    items = bound("source=a", "import@x=b", "import@y=c")
    assert instances(GATE, items) == ("x", "y")
    source, imported = find(items, "source", "x"), find(items, "import", "y")
    assert source is not None
    assert imported is not None
    assert (source.target, imported.target) == ("a", "c")
    assert find(items, "import", "z") is None


def test_a_path_beside_the_contract_is_bound_but_not_by_hand(tmp_path: Path) -> None:
    declared = SubjectDecl(kind=SubjectKind.CHECKPOINT, path="models/a.gguf")
    (item,) = bound(of=contract(source=declared), base=tmp_path)
    assert (item.target, item.by_hand) == (str(tmp_path / "models/a.gguf"), False)
    (item,) = bound("source=other", of=contract(source=declared), base=tmp_path)
    assert (item.target, item.by_hand) == ("other", True)


def test_each_file_of_a_glob_is_an_instance(tmp_path: Path) -> None:
    for name in ("falcon-7b.gguf", "qwen2.5.gguf"):
        (tmp_path / name).touch()
    declared = SubjectDecl(kind=SubjectKind.CHECKPOINT, for_each="*.gguf")
    items = bound(of=contract(source=declared), base=tmp_path)
    assert [item.instance for item in items] == ["falcon-7b", "qwen2-5"]


def test_two_files_of_one_instance_name_are_refused(tmp_path: Path) -> None:
    for name in ("a.1.gguf", "a-1.gguf"):
        (tmp_path / name).touch()
    declared = SubjectDecl(kind=SubjectKind.CHECKPOINT, for_each="*.gguf")
    with pytest.raises(UsageError, match=r"two files of '\*\.gguf' give the instance 'a-1'"):
        bound(of=contract(source=declared), base=tmp_path)


@pytest.mark.parametrize("kind", [SubjectKind.COMMAND, SubjectKind.MODEL])
def test_a_contract_alone_never_makes_anything_run(kind: SubjectKind) -> None:
    assert bound(of=contract(source=SubjectDecl(kind=kind, path="rm"))) == ()


@pytest.mark.parametrize("argument", ["source", "=a", "source=", "Source=a", "source@=a", "source@a/b=c"])
def test_an_argument_of_no_form_is_refused(argument: str) -> None:
    with pytest.raises(UsageError, match="binds nothing"):
        bound(argument)


def test_binding_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="'source' is bound twice"):
        bound("source=a", "source=b")


def test_an_unknown_subject_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="c has no subject 'sourc'; did you mean 'source'"):
        bound("sourc=a")


@pytest.mark.parametrize("known", [Origin.LIVE, Origin.REPORTED])
@pytest.mark.parametrize("by_hand", [True, False])
def test_what_a_contract_names_by_itself_is_a_fixture(by_hand: bool, known: Origin) -> None:
    item = Binding(subject="a", instance="default", kind=SubjectKind.RUN, target="a", by_hand=by_hand)
    assert origin(item, SimpleNamespace(origin=known)) is (known if by_hand else Origin.FIXTURE)
