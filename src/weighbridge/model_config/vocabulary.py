"""The vocabulary of a model: which piece of text each token id stands for and the merges by rank; and how two differ.

Untrusted: an id is bounded before a place is kept for it. Between a directory and a GGUF file, the directory's pieces
are taken as converters write them: WordPiece with a mark before whole words, added tokens with plain spaces, an id
without a piece as `[PADn]`. Knows no threshold.
"""

import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from weighbridge.core import SubjectError, dataclass, field, replace
from weighbridge.model_config.model_keys import Parsed
from weighbridge.quantities.checkpoints import EntryDifference
from weighbridge.storage.readable import ReadableFile
from weighbridge.views.checkpoint import CheckpointView, json_beside, open_sidecar, refuse, text_beside

if TYPE_CHECKING:
    from weighbridge.formats.gguf_file import LongValues

TOKENIZER, MAX_TOKENIZER = "tokenizer.json", 48 << 20  # parsed whole, in ten times its size
FAIRSEQ = "sentencepiece.bpe.model"  # XLM-RoBERTa's, whose tokenizer numbers the pieces anew
MODELS, MAX_MODEL = (FAIRSEQ, "tokenizer.model", "spiece.model"), 32 << 20
MAX_ID = 1 << 22
BERT = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
SPACE = chr(ord(" ") + 256)
TOKENS, MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
SENTENCEPIECE = "sentencepiece"
WITHOUT_TEXT = UNKNOWN, CONTROL = 2, 3  # types of its pieces
# As GGUF numbers the types of tokens; `UNKNOWN` and `CONTROL` are sentencepiece's, too.
NORMAL, USER_DEFINED, UNUSED = 1, 4, 5
LOOK_SPECIAL = re.compile("<pad>|<mask>|<2mass>|\\[@BOS@\\]|<\\|.*\\|>|<\uff5c.*\uff5c>|<unused.*>".encode(), re.DOTALL)
MARK, CONTINUES = "\u2581".encode(), b"##"  # before a whole word, and before what continues one
PADDING = re.compile(rb"(?:\xe2\x96\x81)?\[PAD\d+\]")
WORD_PIECE = "bert"  # GGUF's name of the kind
SHOWN = 60

Pair = tuple[bytes | None, bytes | None]
Walk = Callable[[int], Iterator[bytes | None]]  # from an id on; None where no piece has an id


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Pieces by id, and merges by rank; comparing begins at `first` and `first_merge`."""

    read: str
    count: int  # one more than the highest id
    walk: Walk
    merges: Walk
    merge_count: int
    special: frozenset[int] = frozenset()  # ids of control tokens
    added: frozenset[int] = frozenset()  # ids of texts that a user added
    known: Mapping[str, int] = field(default_factory=dict)  # of a sentencepiece model: what stands for no text
    unknown: int | None = None  # of a sentencepiece model: the id for all other texts
    first: int = 0
    first_merge: int = 0
    why: str = ""  # what keeps the pieces from being read, where they are there


def of_gguf(values: "LongValues") -> Vocabulary | None:
    """Find the vocabulary in a GGUF header, or None; it is read entry by entry, whatever its size."""
    if (count := values.count(TOKENS)) is None:
        return None
    tokens, merges = (functools.partial(values.strings, key) for key in (TOKENS, MERGES))
    return Vocabulary(read=TOKENS, count=count, walk=tokens, merges=merges, merge_count=values.count(MERGES) or 0)


def of_directory(view: CheckpointView, tokenizer: Parsed | None, config: Parsed) -> Vocabulary | None:
    """Read the vocabulary that lies beside a checkpoint, or None; `config` is tokenizer_config.json."""
    if tokenizer is not None:
        return _of_tokenizer(view, tokenizer)
    if (text := text_beside(view, "vocab.txt", MAX_MODEL)) is not None:
        named = {content for key in config if key.endswith("_token") and (content := content_of(config[key]))}
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        special = {at: {"content": one, "special": True} for at, one in enumerate(lines) if one in (named or BERT)}
        return _whole("vocab.txt", [line.encode() for line in lines], special, [])
    if (table := json_beside(view, "vocab.json", MAX_TOKENIZER)) is not None:
        merges = (text_beside(view, "merges.txt", MAX_TOKENIZER) or "").split("\n")
        ranked = [line.strip().encode() for line in merges if line.strip() and not line.startswith("#version")]
        return _whole("vocab.json", _by_id(view, "vocab.json", table), _added_beside(view, config), ranked)
    return _of_sentencepiece(view, config)


def content_of(entry: Any) -> str:
    """Return the text of a token, which stands alone or in a description; empty where there is none."""
    found = entry.get("content") if isinstance(entry, Mapping) else entry
    return found if isinstance(found, str) else ""


def _of_tokenizer(view: CheckpointView, tokenizer: Mapping[str, Any]) -> Vocabulary:
    model = tokenizer.get("model")
    table = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(table, list):  # a unigram model: pieces with their scores, by id
        if not all(isinstance(entry, list) and entry and isinstance(entry[0], str) for entry in table):
            _refuse(view, TOKENIZER, "model.vocab is not a list of pieces and scores")
        table = {entry[0]: at for at, entry in enumerate(table)}
    if not isinstance(model, Mapping) or not isinstance(table, Mapping):
        _refuse(view, TOKENIZER, "model.vocab is neither a mapping nor a list of pieces")
    found, merges = _by_id(view, TOKENIZER, table), model.get("merges")
    entries = tokenizer.get("added_tokens") or []
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        _refuse(view, TOKENIZER, "added_tokens is not a list of tokens")
    added = {_id(view, TOKENIZER, entry.get("id")): entry for entry in entries}
    ranked = []  # as GGUF writes them: a space between both parts, and no other
    for merge in merges if isinstance(merges, list) else []:
        pair = merge.split(" ", 1) if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            _refuse(view, TOKENIZER, "model.merges holds what is no pair of pieces")
        ranked.append(" ".join(part.replace(" ", SPACE) for part in pair).encode())
    return _whole(TOKENIZER, found, added, ranked)


def _added_beside(view: CheckpointView, config: Parsed) -> dict[int, Parsed]:
    name = "added_tokens.json"
    contents = json_beside(view, name, MAX_MODEL) or {}
    plain: dict[int, Parsed] = {_id(view, name, at): {"content": content} for content, at in contents.items()}
    found = {_id(view, "tokenizer_config.json", at): entry for at, entry in numbered(config)}
    return plain | {at: entry for at, entry in found.items() if isinstance(entry, Mapping)}


def numbered(config: Parsed) -> Iterator[tuple[Any, Any]]:
    """Yield the ids and descriptions of an added_tokens_decoder, whose keys are texts; what is no number as it is."""
    decoder = config.get("added_tokens_decoder")
    for at, entry in decoder.items() if isinstance(decoder, Mapping) else ():
        yield int(at) if at.isdecimal() and len(at) < 12 else at, entry


def _of_sentencepiece(view: CheckpointView, config: Mapping[str, Any]) -> Vocabulary | None:
    for name in MODELS:
        if (file := open_sidecar(view, name, MAX_MODEL)) is None:
            continue
        try:
            pieces = sentencepieces(file)
        except SubjectError as problem:
            if not problem.code.startswith(SENTENCEPIECE):
                raise
            why = f"{name} is no sentencepiece model: {problem.what}, in {problem.where}"
            return replace(_whole(name, [], {}, []), why=why)
        file.require_unchanged()
        if name == FAIRSEQ:
            pieces = [(b"<s>", CONTROL), (b"<pad>", CONTROL), (b"</s>", CONTROL), (b"<unk>", UNKNOWN), *pieces[3:]]
        kinds = [kind for _, kind in pieces]
        known = {text.decode("utf-8", "replace"): at for at, (text, kind) in enumerate(pieces) if kind in WITHOUT_TEXT}
        found = _whole(name, [text for text, _ in pieces], _added_beside(view, config), [])
        return replace(found, known=known, unknown=kinds.index(UNKNOWN) if UNKNOWN in kinds else None)
    return None


def sentencepieces(file: ReadableFile) -> list[tuple[bytes, int]]:
    """Return texts and types of a sentencepiece model's pieces, by id; refuse with `sentencepiece-…` and the byte."""
    from weighbridge.formats.protobuf import LENGTH, VARINT, Message

    model, found = Message(file, 0, file.size, [0], SENTENCEPIECE), []
    for one in model.fields({1: (LENGTH,)}):  # of ModelProto its pieces, and of SentencePiece its text and type
        piece = model.within(one)
        collected = piece.collected({1: (LENGTH,), 3: (VARINT,)}, once=(3,))
        texts, kinds = collected[1], collected[3]
        if len(texts) != 1:
            piece.refuse("piece", f"a piece has {len(texts)} texts")
        found.append((bytes(file.read(texts[0].start, texts[0].stop)), kinds[0].value if kinds else 1))
    if not found:
        model.refuse("piece", "it holds no pieces")
    return found


def _by_id(view: CheckpointView, name: str, table: Mapping[str, Any]) -> list[bytes | None]:
    ids = [_id(view, name, at) for at in table.values()]
    found: list[bytes | None] = [None] * (max(ids, default=-1) + 1)
    for piece, at in zip(table, ids, strict=True):
        if found[at] is not None:
            _refuse(view, name, f"two pieces have the id {at}")
        found[at] = piece.encode()
    return found


def _id(view: CheckpointView, name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < MAX_ID:
        _refuse(view, name, f"a token's id is no whole number from 0 to {MAX_ID - 1}")
    return value


def _refuse(view: CheckpointView, name: str, what: str) -> NoReturn:
    refuse(what, view.sidecars.files[name])


def _whole(read: str, found: list[bytes | None], added: Mapping[int, Parsed], merges: list[bytes]) -> Vocabulary:
    found = [*found, *[None] * (max(added, default=-1) + 1 - len(found))]
    for at, entry in added.items():
        found[at] = content_of(entry).encode()
    special = frozenset(at for at, entry in added.items() if entry.get("special") is True)

    def walk(entries: list[Any]) -> Walk:
        return lambda start: itertools.islice(entries, start, None)

    made = Vocabulary(read=read, count=len(found), walk=walk(found), merges=walk(merges), merge_count=len(merges))
    return replace(made, special=special, added=frozenset(added) - special)


def token_types(vocabulary: Vocabulary, size: int) -> Iterator[int]:
    """Yield the type of each of `size` tokens, as the converter makes it of added ones (conversion/base.py:1557)."""
    for at, piece in enumerate(vocabulary.walk(0)):
        added = at in vocabulary.added
        if piece is None:
            yield UNUSED
        elif at in vocabulary.special or (added and LOOK_SPECIAL.fullmatch(piece)):
            yield CONTROL
        else:
            yield USER_DEFINED if added else NORMAL
    yield from itertools.repeat(UNUSED, max(size - vocabulary.count, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What comparing two lists gave: how many entries each has, digests of them, and where they differ."""

    entries: tuple[int, int]
    digests: tuple[str, str]
    differing: int
    first: EntryDifference | None


def compare_pieces(source: Vocabulary, candidate: Vocabulary, *, file: Vocabulary | None, kind: str) -> Compared:
    """Compare pieces id by id; `file` is the side that is a GGUF file, of this kind, where the other is none."""
    first = source.first
    if file is None:
        return _compared(itertools.zip_longest(source.walk(first), candidate.walk(candidate.first)), first)
    if file is candidate:
        return _compared(_written(source, file, kind), first)
    return _compared(((stored, piece) for piece, stored in _written(candidate, file, kind)), first)


def compare_merges(source: Vocabulary, candidate: Vocabulary) -> Compared:
    """Compare merges rank by rank."""
    start = source.first_merge
    return _compared(itertools.zip_longest(source.merges(start), candidate.merges(start)), start)


def _written(directory: Vocabulary, file: Vocabulary, kind: str) -> Iterator[Pair]:
    pairs = itertools.zip_longest(directory.walk(directory.first), file.walk(file.first))
    for at, (piece, stored) in enumerate(pairs, directory.first):
        if piece is None:
            yield None, None if stored is None or PADDING.fullmatch(stored) else stored
        elif at in directory.added:
            yield piece.replace(MARK, b" "), None if stored is None else stored.replace(MARK, b" ")
        elif kind == WORD_PIECE and at not in directory.special:
            yield piece[2:] if piece.startswith(CONTINUES) else MARK + piece, stored
        else:
            yield piece, stored


def _compared(pairs: Iterable[Pair], start: int) -> Compared:
    digests = hashlib.sha256(), hashlib.sha256()
    counts, differing, first = [0, 0], 0, None
    for at, pair in enumerate(pairs, start):
        for side, piece in enumerate(pair):
            if piece is not None:
                digests[side].update(b"%d:%d:" % (at, len(piece)) + piece)
                counts[side] += 1
        if pair[0] != pair[1]:
            differing += 1
            first = first or EntryDifference(index=at, source=_shown(pair[0]), candidate=_shown(pair[1]))
    one, other = (f"sha256:{digest.hexdigest()}" for digest in digests)
    return Compared(entries=(counts[0], counts[1]), digests=(one, other), differing=differing, first=first)


def _shown(piece: bytes | None) -> str:
    return "nothing" if piece is None else str(piece[:SHOWN], "utf-8", "backslashreplace")
