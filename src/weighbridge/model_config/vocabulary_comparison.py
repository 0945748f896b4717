"""Hold two vocabularies against each other, entry by entry, in the form in which a GGUF file holds them.

Between a directory and a GGUF file, the directory's pieces are taken as converters write them: WordPiece with a mark
before whole words, added tokens with plain spaces, an id without a piece as `[PADn]`. Knows no threshold.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from weighbridge.model_config.vocabulary import Vocabulary
from weighbridge.quantities.checkpoint import EntryDifference

MARK, CONTINUES = "\u2581".encode(), b"##"  # before a whole word, and before what continues one
PADDING = re.compile(rb"(?:\xe2\x96\x81)?\[PAD\d+\]")
WORD_PIECE = "bert"  # GGUF's name of the kind
SHOWN = 60
Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What comparing two lists told: how many entries each has, digests of them, and where they differ."""

    entries: tuple[int, int]
    digests: tuple[str, str]
    differing: int
    first: EntryDifference | None


def of_pieces(source: Vocabulary, candidate: Vocabulary, *, file: Vocabulary | None, kind: str) -> Compared:
    """Compare pieces id by id; `file` is the side that is a GGUF file, of this kind, where the other is none."""
    if file is None:
        return _compared(itertools.zip_longest(_entries(source), _entries(candidate)), source.first)
    if file is candidate:
        return _compared(_written(source, file, kind), source.first)
    return _compared(((stored, piece) for piece, stored in _written(candidate, file, kind)), source.first)


def of_merges(source: Vocabulary, candidate: Vocabulary) -> Compared:
    """Compare merges rank by rank."""
    start = source.first_merge
    return _compared(itertools.zip_longest(source.merges(start), candidate.merges(start)), start)


def _entries(vocabulary: Vocabulary) -> Iterator[bytes | None]:
    return vocabulary.walk(vocabulary.first)


def _written(directory: Vocabulary, file: Vocabulary, kind: str) -> Iterator[Pair]:
    """Walk over both sides at once, the directory's pieces as a converter writes them."""
    pairs = itertools.zip_longest(_entries(directory), _entries(file))
    for at, (piece, stored) in enumerate(pairs, directory.first):
        if piece is None:
            padded = stored is None or PADDING.fullmatch(stored)
            yield None, None if padded else stored
        elif at in directory.added:
            yield piece.replace(MARK, b" "), None if stored is None else stored.replace(MARK, b" ")
        elif kind == WORD_PIECE and at not in directory.special:
            yield piece[2:] if piece.startswith(CONTINUES) else MARK + piece, stored
        else:
            yield piece, stored


def _compared(pairs: Iterable[Pair], start: int) -> Compared:
    digests = hashlib.sha256(), hashlib.sha256()
    counts, differing = [0, 0], 0
    first = None
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
