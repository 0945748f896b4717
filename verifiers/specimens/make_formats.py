"""Make the specimens of further checkpoint formats, byte by byte: `python verifiers/specimens/make_formats.py`.

Holds the tensors of `checkpoints/source.safetensors`. Uses no checkpoint library, so that the readers are held against
bytes that none of them wrote, the hostile ones too. Deterministic.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent / "formats"
EMBED = struct.pack("<8f", 0.5, -1.25, 3.0, 0.0078125, -96.0, 1.0, 2.5, -0.0)
EMBED_TURNED = struct.pack("<8f", 0.5, -96.0, -1.25, 1.0, 3.0, 2.5, 0.0078125, -0.0)
NORM = struct.pack("<6H", 0x40F2, 0x4100, 0x40E7, 0x40EA, 0x40EF, 0x40EC)
ORIGIN = {"weighbridge.origin": "fixture"}
APR_METADATA = b'{"architecture":"specimen","weighbridge.origin":"fixture"}'
Q4_K = bytes((index * 37 + 11) % 251 for index in range(2 * 144))


class View(NamedTuple):
    """A tensor as a pickle describes it: a look into a storage, in elements."""

    kind: str
    key: str
    size: int
    shape: Sequence[int]
    steps: Sequence[int]
    first: int = 0


ProtobufField = tuple[int, int | bytes]


class Raw(NamedTuple):
    """Opcodes put into a pickle as they are."""

    opcodes: bytes


def pickled(value: Any, *, legacy: bool = False) -> bytes:
    """Write a whole pickle of protocol 2."""
    return b"\x80\x02" + opcodes(value, legacy=legacy) + b"."


def opcodes(value: Any, *, legacy: bool = False) -> bytes:
    """Write the opcodes that make a value."""
    match value:
        case Raw(data):
            return data
        case View():
            return _view(value, legacy=legacy)
        case None | bool():
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        case int():
            raw = value.to_bytes(9, "little", signed=True)
            return b"J" + struct.pack("<i", value) if -(2**31) <= value < 2**31 else b"\x8a\x09" + raw
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case dict():
            return b"}(" + b"".join(opcodes(part, legacy=legacy) for pair in value.items() for part in pair) + b"u"
        case list():
            return b"](" + b"".join(opcodes(part, legacy=legacy) for part in value) + b"e"
        case tuple():
            return b"(" + b"".join(opcodes(part, legacy=legacy) for part in value) + b"t"
    raise TypeError(value)


def named(name: str) -> Raw:
    """Name a global."""
    module, _, last = name.rpartition(".")
    return Raw(f"c{module}\n{last}\n".encode())


def called(name: str, *args: Any) -> Raw:
    """Call a global."""
    return Raw(named(name).opcodes + opcodes(args) + b"R")


def _view(view: View, *, legacy: bool) -> bytes:
    kind = named(f"torch.{view.kind}Storage")
    reference = opcodes(("storage", kind, view.key, "cpu", view.size, *((None,) if legacy else ()))) + b"Q"
    hooks = called("collections.OrderedDict")
    args = Raw(reference), view.first, tuple(view.shape), tuple(view.steps), False, hooks
    return called("torch._utils._rebuild_tensor_v2", *args).opcodes


def archive(members: Mapping[str, bytes], *, method: int = 0, flags: int = 0x800) -> bytes:
    """Lay members out as a ZIP archive, each content at a multiple of 64 bytes, as torch.save does."""
    body, directory = b"", b""
    for name, data in members.items():
        raw, crc, at = name.encode(), zlib.crc32(data), len(body)
        padding = -(at + 30 + len(raw) + 4) % 64
        told = struct.pack("<5HI", 20, flags, method, 0, 0x21, crc) + struct.pack("<2I", len(data), len(data))
        extra = b"FB" + struct.pack("<H", padding) + bytes(padding)
        body += b"PK\x03\x04" + told + struct.pack("<2H", len(raw), len(extra)) + raw + extra + data
        directory += b"PK\x01\x02\0\0" + told + struct.pack("<5H2I", len(raw), 0, 0, 0, 0, 0, at) + raw
    end = struct.pack("<4H2IH", 0, 0, len(members), len(members), len(directory), len(body), 0)
    return body + directory + b"PK\x05\x06" + end


def torch_zip(value: Any, storages: Mapping[str, bytes], *, order: bytes = b"little") -> bytes:
    """Lay a value out as torch.save does since PyTorch 1.6."""
    data = {f"archive/data/{key}": content for key, content in storages.items()}
    return archive({"archive/data.pkl": pickled(value), "archive/byteorder": order, **data, "archive/version": b"3\n"})


def torch_legacy(value: Any, storages: Mapping[str, tuple[int, bytes]], *, little: bool = True) -> bytes:
    """Lay a value out as torch.save did before PyTorch 1.6; a storage is its count of elements and its bytes."""
    magic = b"\x80\x02\x8a\x0a" + bytes.fromhex("6cfc9c46f9206aa85019") + b"."
    system = {"protocol_version": 1001, "little_endian": little}
    pickles = pickled(1001), pickled(system), pickled(value, legacy=True), pickled(list(storages))
    return magic + b"".join(pickles) + b"".join(struct.pack("<q", count) + data for count, data in storages.values())


class Apr(NamedTuple):
    """A tensor of an APR file: its dtype code, shape and bytes."""

    code: int
    shape: Sequence[int]
    data: bytes


def apr(tensors: Mapping[str, Apr], *, flags: int = 0x400, metadata: bytes = APR_METADATA) -> bytes:
    """Lay tensors out as APR of version 2; the data lies in the order given, the index in that of the names."""
    offsets, body = dict[str, int](), b""
    for name, tensor in tensors.items():
        offsets[name] = len(body)
        body += padded(tensor.data)
    return apr_of([apr_entry(name, *tensors[name], offsets[name]) for name in sorted(tensors)], body, flags, metadata)


def apr_entry(name: str, code: int, shape: Sequence[int], data: bytes | int, offset: int) -> bytes:
    """Write an entry of the index; the size is the data's, or the number given."""
    raw, size = name.encode(), data if isinstance(data, int) else len(data)
    dims = struct.pack(f"<{len(shape)}Q", *shape)
    return struct.pack("<H", len(raw)) + raw + bytes([code, len(shape)]) + dims + struct.pack("<2Q", offset, size)


def apr_of(entries: Sequence[bytes], body: bytes, flags: int = 0x400, metadata: bytes = APR_METADATA) -> bytes:
    """Put header, metadata, index, data and footer together."""
    index = padded(b"".join(entries))
    index_at = 64 + len(padded(metadata))
    told = len(entries), 64, len(metadata), index_at, index_at + len(index)
    start = b"APR\0\2\0" + struct.pack("<HIQI2Q", flags, *told)
    reserved = bytes(20)
    header = start + struct.pack("<I", zlib.crc32(start + reserved)) + reserved
    return signed(header + padded(metadata) + index + body)


def signed(content: bytes) -> bytes:
    """Put the footer behind it."""
    return content + struct.pack("<I", zlib.crc32(content))


def padded(data: bytes) -> bytes:
    """Fill up to a multiple of 64 bytes."""
    return data + bytes(-len(data) % 64)


def npy(descr: str, shape: Sequence[int], data: bytes, *, fortran: bool = False) -> bytes:
    """Lay an array out as numpy.save does."""
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data


def gguf(tensors: Mapping[str, tuple[int, Sequence[int], bytes]]) -> bytes:
    """Lay tensors out as GGUF of version 3."""
    infos, body = b"", b""
    for name, (kind, shape, data) in tensors.items():
        told = struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(body))
        infos += struct.pack("<Q", len(name)) + name.encode() + told
        body += data + bytes(-len(data) % 32)
    key, value = b"weighbridge.origin", b"fixture"
    texts = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(value)) + value
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1) + texts + infos
    return head + bytes(-len(head) % 32) + body


def varint(value: int) -> bytes:
    """Write a number of protobuf."""
    data = b""
    while value > 0x7F:
        data, value = data + bytes([value & 0x7F | 0x80]), value >> 7
    return data + bytes([value])


def message(*fields: ProtobufField) -> bytes:
    """Lay out a message of protobuf: numbers as varints, all else with its length."""
    data = b""
    for number, value in fields:
        if isinstance(value, int):
            data += varint(number << 3) + varint(value)
        else:
            data += varint(number << 3 | 2) + varint(len(value)) + value
    return data


def onnx_tensor(name: str, dtype: int, shape: Sequence[int], *data: ProtobufField) -> bytes:
    """Lay out a tensor of ONNX; `data` are the fields that hold its values."""
    return message(*((1, side) for side in shape), (2, dtype), (8, name.encode()), *data)


def onnx_beside(location: str, **more: object) -> list[ProtobufField]:
    """Say that a tensor's values lie in a file beside the model."""
    pairs = {"location": location, **more}
    entries = (message((1, key.encode()), (2, str(value).encode())) for key, value in pairs.items())
    return [*((13, entry) for entry in entries), (14, 1)]


def onnx(*initializers: bytes, graph: bytes = b"", more: Sequence[ProtobufField] = ((8, b"\x10\x15"),)) -> bytes:
    """Lay out a model of ONNX; `graph` follows the initializers, `more` the graph (an opset, unless told)."""
    return message((1, 10), (2, b"specimen"), (7, message(*((5, one) for one in initializers)) + graph), *more)


ONNX_ORIGIN = message((1, b"weighbridge.origin"), (2, b"fixture"))
ONNX_MORE: Sequence[ProtobufField] = ((8, b"\x10\x15"), (14, ONNX_ORIGIN))


STATE: dict[str, Any] = {
    "embed": View("Float", "0", 8, (2, 4), (4, 1)),
    "model.norm.weight": View("BFloat16", "1", 6, (6,), (1,)),
    **ORIGIN,
}


def good() -> dict[str, bytes]:
    """Make the specimens that can be read, by file name."""
    storages = {"0": EMBED, "1": NORM}
    turned = {**STATE, "embed": View("Float", "0", 8, (2, 4), (1, 2))}
    return {
        "source.pt": torch_zip(STATE, storages),
        "transposed-view.pt": torch_zip(turned, {"0": EMBED_TURNED, "1": NORM}),
        "legacy.pt": torch_legacy(STATE, {"0": (8, EMBED), "1": (6, NORM)}),
        "old-codes.apr": apr({"model.norm.weight": Apr(2, (6,), NORM), "embed": Apr(0, (2, 4), EMBED)}),
        "new-codes.apr": apr({"model.norm.weight": Apr(30, (6,), NORM), "embed": Apr(0, (2, 4), EMBED)}),
        "values.npz": archive({"embed.npy": npy("<f4", (2, 4), EMBED), "flags.npy": npy("|b1", (2,), b"\1\0")}),
        "embed-fortran.npy": npy("<f4", (2, 4), EMBED_TURNED, fortran=True),
        "embed.npy": npy("<f4", (2, 4), EMBED),
        "source.onnx": onnx(
            onnx_tensor("embed", 1, (2, 4), (4, EMBED)),
            onnx_tensor("model.norm.weight", 16, (6,), (9, NORM)),
            more=ONNX_MORE,
        ),
        "beside.onnx": onnx(
            onnx_tensor("embed", 1, (2, 4), *onnx_beside("beside.onnx.data", offset=64, length=len(EMBED))),
            onnx_tensor("model.norm.weight", 16, (6,), *onnx_beside("beside.onnx.data", length=len(NORM))),
            more=ONNX_MORE,
        ),
        "beside.onnx.data": NORM + bytes(64 - len(NORM)) + EMBED,
        "blocks.apr": apr({"w": Apr(12, (2, 256), Q4_K)}),
        "blocks.gguf": gguf({"w": (12, (2, 256), Q4_K)}),
    }


def damaged() -> dict[str, bytes]:
    """Make the specimens that must be refused, by file name."""
    source = good()["source.pt"]
    imported = good()["new-codes.apr"]
    runs_code = {"a": called("posix.system", "touch /tmp/weighbridge-was-here")}
    huge = {"a": View("Float", "0", 8, (2**30, 2**30), (0, 0))}
    return {
        "damaged/runs-code.pt": torch_zip(runs_code, {}),
        "damaged/runs-code-legacy.pt": torch_legacy(runs_code, {}),
        "damaged/truncated.pt": source[:-1],
        "damaged/flipped-in-pickle.pt": source.replace(b"BFloat16Storage", b"BFloat17Storage"),
        "damaged/expanded-2-60.pt": torch_zip(huge, {"0": EMBED}),
        "damaged/truncated.apr": imported[:-1],
        "damaged/flipped-in-header.apr": imported[:8] + b"\3" + imported[9:],
        "damaged/overlapping.apr": apr_of(
            [apr_entry("a", 0, (16,), 64, 0), apr_entry("b", 0, (16,), 64, 0)], bytes(128)
        ),
        "damaged/size-2-60.apr": apr_of([apr_entry("a", 0, (2**58,), 2**60, 0)], bytes(64)),
        "damaged/both-codes.apr": apr({"a": Apr(2, (6,), NORM), "b": Apr(30, (6,), NORM)}),
        "damaged/dtype-lost.npz": archive({"norm.npy": npy("<V2", (6,), NORM)}),
        "damaged/objects.npy": npy("|O", (1,), pickled(called("posix.system", "touch /tmp/weighbridge-was-here"))),
        "damaged/compressed.npz": archive({"embed.npy": npy("<f4", (2, 4), EMBED)}, method=8),
        "damaged/shape-2-40.npy": npy("<f4", (2**40,), EMBED),
        "damaged/truncated.onnx": good()["source.onnx"][:-1],
        "damaged/escapes.onnx": onnx(onnx_tensor("embed", 1, (2, 4), *onnx_beside("../embed.npy"))),
        "damaged/length-2-60.onnx": onnx() + varint(99 << 3 | 2) + varint(2**60),
        "damaged/twice.onnx": onnx(*[onnx_tensor("embed", 1, (2, 4), (9, EMBED))] * 2),
        "damaged/big-endian.pt": torch_zip(STATE, {"0": EMBED, "1": NORM}, order=b"big"),
    }


def main() -> None:
    """Write every specimen into its place."""
    for name, data in (good() | damaged()).items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
