"""Vocabularies come out the same whichever of a model's files tells them; hostile ones are refused."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.formats.files import safetensors

from weighbridge.core.errors import SubjectError
from weighbridge.model_config.vocabulary import Vocabulary, of_directory, sentencepieces
from weighbridge.storage.mapped_file import MappedFile
from weighbridge.views.checkpoint import CheckpointView, json_beside, open_checkpoint

PIECES = ["<s>", "a", "b", "ab", "\u0120b"]
ADDED = [{"id": 0, "content": "<s>", "special": True}, {"id": 6, "content": "[new]", "special": False}]


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def length(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def piece(text: bytes) -> bytes:
    return length(1, length(1, text) + b"\x15" + struct.pack("<f", -2.5) + b"\x18\x03")


def read_pieces(folder: Path, data: bytes) -> list[bytes]:
    path = folder / "tokenizer.model"
    path.write_bytes(data)
    return [text for text, _ in sentencepieces(MappedFile(path, "m"))]


def folder(home: Path, **files: Any) -> CheckpointView:
    home.mkdir(exist_ok=True)
    safetensors(home / "model.safetensors", {"w": ("F32", (1,), bytes(4))})
    for name, content in files.items():
        path = home / name.replace("__", ".")
        raw = content if isinstance(content, bytes) else content.encode() if isinstance(content, str) else None
        path.write_bytes(json.dumps(content).encode() if raw is None else raw)
    return open_checkpoint(home)


def read(home: Path, **files: Any) -> Vocabulary:
    view = folder(home, **files)
    config = json_beside(view, "tokenizer_config.json", 1 << 20) or {}
    found = of_directory(view, json_beside(view, "tokenizer.json", 1 << 20), config)
    assert found is not None
    return found


def tokenizer(vocabulary: Any, **more: Any) -> dict[str, Any]:
    return {"model": {"vocab": vocabulary, **more}, "added_tokens": ADDED}


def told(found: Vocabulary, start: int = 0) -> list[bytes | None]:
    return list(found.walk(start))


BY_ID = [*(text.encode() for text in PIECES), None, b"[new]"]


def test_every_form_of_a_vocabulary_tells_the_same_pieces(tmp_path: Path) -> None:
    table = {text: at for at, text in enumerate(PIECES)}
    decoder = {str(entry["id"]): entry for entry in ADDED}
    forms: dict[str, dict[str, Any]] = {
        "mapping": {"tokenizer__json": tokenizer(table)},
        "unigram": {"tokenizer__json": tokenizer([[text, -1.5] for text in PIECES])},
        "slow": {"vocab__json": table, "tokenizer_config__json": {"added_tokens_decoder": decoder}},
        "added": {"vocab__json": {**table, "[new]": 6}},
        "pieces": {"tokenizer__model": b"".join(piece(text.encode()) for text in PIECES),
                   "tokenizer_config__json": {"added_tokens_decoder": decoder}},
        "spiece": {"spiece__model": b"".join(piece(text.encode()) for text in PIECES),
                   "added_tokens__json": {"[new]": 6}},
    }  # fmt: skip
    for name, files in forms.items():
        found = read(tmp_path / name, **files)
        assert (told(found), found.count, told(found, 4)) == (BY_ID, 7, BY_ID[4:]), name


def test_lines_are_pieces_and_the_tokens_that_are_named_are_special(tmp_path: Path) -> None:
    found = read(tmp_path, vocab__txt="[PAD]\r\nthe\r\n\r\n##s\n\n", tokenizer_config__json={"pad_token": "[PAD]"})
    assert told(found) == [b"[PAD]", b"the", b"", b"##s"]
    assert found.special == {0}


@pytest.mark.parametrize("merges", [["a b", "\u0120 a"], [["a", "b"], ["\u0120", "a"]]])
def test_merges_of_both_forms_are_one(tmp_path: Path, merges: Any) -> None:
    found = read(tmp_path, tokenizer__json=tokenizer({"a": 0}, merges=merges))
    assert (list(found.merges(0)), list(found.merges(1))) == (
        [b"a b", "\u0120 a".encode()],
        ["\u0120 a".encode()],
    )
    slow = read(tmp_path / "slow", vocab__json={"a": 0}, merges__txt="#version: 0.2\na b\n\u0120 a\n")
    assert list(slow.merges(0)) == list(found.merges(0))


def test_a_space_inside_of_a_merge_is_written_as_converters_do(tmp_path: Path) -> None:
    found = read(tmp_path, tokenizer__json=tokenizer({"a": 0}, merges=[["a b", "c"]]))
    assert list(found.merges(0)) == ["a\u0120b c".encode()]


def typed(text: bytes, kind: int) -> bytes:
    return length(1, length(1, text) + b"\x18" + varint(kind))


def test_the_types_of_a_sentencepiece_model_say_which_ids_stand_for_no_text(tmp_path: Path) -> None:
    model = typed(b"<unk>", 2) + typed(b"<s>", 3) + typed(b"a", 1) + length(1, length(1, b"b"))
    found = read(tmp_path / "llama", tokenizer__model=model)
    assert (found.known, found.unknown) == ({"<unk>": 0, "<s>": 1}, 0)
    fairseq = read(tmp_path / "roberta", sentencepiece__bpe__model=model)
    assert told(fairseq) == [b"<s>", b"<pad>", b"</s>", b"<unk>", b"b"]
    assert (fairseq.known["<pad>"], fairseq.unknown) == (1, 3)


def test_what_is_no_sentencepiece_model_is_reported_and_not_refused(tmp_path: Path) -> None:
    found = read(tmp_path, tokenizer__model="IQ== 0\nIg== 1\n")
    assert (found.count, found.why.partition(":")[0]) == (0, "tokenizer.model is no sentencepiece model")


@each(
    "files, message",
    [
        ({"tokenizer__json": tokenizer({"a": 2**40})}, "a token's id is no whole number from 0 to 4194303"),
        ({"tokenizer__json": tokenizer({"a": -1})}, "a token's id is no whole number"),
        ({"tokenizer__json": tokenizer({"a": True})}, "a token's id is no whole number"),
        ({"tokenizer__json": tokenizer({"a": 1.5})}, "a token's id is no whole number"),
        ({"tokenizer__json": tokenizer({"a": 1, "b": 1})}, "two pieces have the id 1"),
        ({"tokenizer__json": tokenizer("a")}, "model.vocab is neither a mapping nor a list of pieces"),
        ({"tokenizer__json": tokenizer([["a"], "b"])}, "model.vocab is not a list of pieces and scores"),
        ({"tokenizer__json": tokenizer({}, merges=["ab"])}, "model.merges holds what is no pair of pieces"),
        ({"tokenizer__json": tokenizer({}, merges=[["a", 1]])}, "model.merges holds what is no pair of pieces"),
        ({"tokenizer__json": {"model": {"vocab": {}}, "added_tokens": [1]}}, "added_tokens is not a list of tokens"),
        ({"tokenizer__json": []}, "is not an object"),
        ({"vocab__json": {"a": "0"}}, "a token's id is no whole number"),
        ({"vocab__json": {"a": 0}, "added_tokens__json": {"b": 2**40}}, "a token's id is no whole number"),
        ({"vocab__json": {}, "tokenizer_config__json": {"added_tokens_decoder": {"x": {}}}}, "no whole"),
    ],
)  # fmt: skip
def test_a_hostile_vocabulary_is_refused(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(SubjectError) as raised:
        read(tmp_path, **files)
    assert raised.value.code == "config"
    assert message in str(raised.value)


def test_a_folder_without_a_tokenizer_has_no_vocabulary(tmp_path: Path) -> None:
    assert of_directory(folder(tmp_path), None, {}) is None


@settings(max_examples=60)
@given(texts=st.lists(st.binary(max_size=300), min_size=1, max_size=20), trainer=st.binary(max_size=200))
def test_pieces_come_in_order_whatever_else_the_model_holds(tmp_path: Path, texts: list[bytes], trainer: bytes) -> None:
    model = length(2, trainer) + b"".join(map(piece, texts)) + b"\x51" + bytes(8) + length(3, b"")
    assert read_pieces(tmp_path, model) == texts


@pytest.mark.slow
@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_a_model_or_are_refused(tmp_path: Path, data: bytes) -> None:
    with contextlib.suppress(SubjectError):
        assert read_pieces(tmp_path, data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (length(2, b"no piece"), "sentencepiece-piece it holds no pieces at byte 0"),
        (b"IQ== 0\n", "sentencepiece-truncated the field 9 takes 8 bytes, 6 are left at byte 0"),
        (piece(b"abc")[:-1], "sentencepiece-truncated the field 1 takes 12 bytes, 11 are left at byte 0"),
        (
            varint(1 << 3 | 2) + varint(2**62) + b"x",
            "sentencepiece-truncated the field 1 takes 4611686018427387904 bytes, 1 are left at byte 0",
        ),
        (b"\x0a" + b"\x80" * 20, "sentencepiece-wire a number has more than 64 bits at byte 1"),
        (length(1, b"\x15" + bytes(4)), "sentencepiece-piece a piece has 0 texts at byte 2"),
        (b"\x0b", "sentencepiece-wire the field 1 has the wire type 3 at byte 0"),
    ],
)
def test_what_is_no_model_is_refused_with_its_place(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(SubjectError) as raised:
        read_pieces(tmp_path, data)
    problem = raised.value
    assert f"{problem.code} {problem.what} {problem.where.removeprefix('m ')}" == message
