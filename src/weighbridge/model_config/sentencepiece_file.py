"""Read the pieces of a sentencepiece model, through `protobuf`, without its library. Parses untrusted bytes.

Only what is needed is read: each piece's text, in order.
"""

from __future__ import annotations

from weighbridge.formats.protobuf import LENGTH, Message
from weighbridge.storage.readable import ReadableFile

FORMAT = "sentencepiece"
PIECES, TEXT = {1: (LENGTH,)}, {1: (LENGTH,)}  # fields of ModelProto, and of SentencePiece


def pieces(file: ReadableFile) -> list[bytes]:
    """List the texts of a model's pieces, by id.

    Raises:
        SubjectError: `sentencepiece-…`, with the byte at which it is none.
    """
    model, found = Message(file, 0, file.size, [0], FORMAT), []
    for field in model.fields(PIECES):
        piece = model.within(field)
        texts = list(piece.fields(TEXT))
        if len(texts) != 1:
            piece.refuse("piece", f"a piece has {len(texts)} texts")
        found.append(bytes(file.read(texts[0].start, texts[0].stop)))
    if not found:
        model.refuse("piece", "it holds no pieces")
    return found
