"""Read a PyTorch distributed checkpoint without torch: its files must be, byte by byte, what `.metadata` promises."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from weighbridge.core import Scalar, SubjectError, dataclass, np, quoted, replace
from weighbridge.formats import torch_file, zip_archive
from weighbridge.formats.pickle_machine import DICTIONARY, MAX_PICKLE, Global, Made, Vocabulary, read_pickle
from weighbridge.formats.tensor import Block, Checksum, Piece, Pieces, Reading, Tensor, span
from weighbridge.formats.torch_file import DTYPES, MAX_RANK, NAMES, WHOLE, beside_the_model, in_values, whole
from weighbridge.storage.readable import METADATA, Folder, ReadableFile, is_plain

MODULE = "torch.distributed.checkpoint.metadata"
MAGIC = MODULE.encode()[:19]  # what of it lies among the first bytes, behind protocol and frame
OLDER = "torch.distributed._shard.sharded_tensor.metadata"  # of PyTorch before 2.4
STORAGE = "torch.distributed.checkpoint.filesystem._StorageInfo"
SAVED = f"{MODULE}.Metadata"
TENSOR, BYTES = f"{MODULE}.TensorStorageMetadata", f"{MODULE}.BytesStorageMetadata"
CHUNK, INDEX = f"{MODULE}.ChunkStorageMetadata", f"{MODULE}.MetadataIndex"
PROPERTIES = f"{MODULE}.TensorProperties", f"{OLDER}.TensorProperties"
MAX_CELLS = 1 << 22  # that the edges of pieces cut a tensor into
CELLS = 64  # for each pair of pieces; a grid has one for each piece
BY_NAME = {f"torch.{name}": dtype for name, dtype in DTYPES.items()}
VOCABULARY = Vocabulary(
    calls=frozenset(NAMES["distributed_calls"]),
    containers=frozenset({"collections.OrderedDict"}),
    classes=frozenset({SAVED, TENSOR, BYTES, CHUNK, INDEX, *PROPERTIES, STORAGE, f"{MODULE}.StorageMeta"}),
    names=frozenset(BY_NAME),
)
SAVE_AGAIN = "load it with PyTorch and save it again, with torch.distributed.checkpoint or as safetensors"
REMEDIES = {
    "transformed": "save it without _extensions: what is compressed or encrypted cannot be looked at in place",
    "path": "fetch it again from where it was saved: PyTorch writes plain names only, beside .metadata",
}
Key = tuple[str, tuple[int, ...] | None]  # a tensor's name and a piece's first element; None for what is no tensor
COPY_AGAIN = "copy the whole directory again, .metadata and all .distcp files of one save"
COPY_FILES = "copy the files themselves into the directory (cp -L)"


class Item(NamedTuple):
    """Where one item lies: a plain file name, its first byte there, and how many there are."""

    file: str
    start: int
    nbytes: int


class Saved(NamedTuple):
    """A tensor as it was saved: its sizes count stored words, of which an F4 one holds two elements."""

    dtype: str
    sizes: tuple[int, ...]
    blocks: tuple[Block, ...]


class Contents(NamedTuple):
    """What a checkpoint says it holds; `items` has one for every piece and other, `beside` are a trainer's tensors."""

    tensors: Mapping[str, Saved]
    others: tuple[str, ...]
    items: Mapping[Key, Item]
    beside: frozenset[str]


def begins(head: bytes) -> bool:
    """Return whether a file begins as the pickle of a distributed checkpoint does, whatever its protocol."""
    return head.startswith(b"\x80") and MAGIC in head


@dataclass(frozen=True, slots=True)
class _Reader:
    file: ReadableFile

    def refuse(self, code: str, what: str) -> NoReturn:
        refuse(code, what, self.file)

    def contents(self) -> Contents:
        """Read what the checkpoint holds; refuse with `dcp-…` or `pickle-…`, the tensor and the reason."""
        size = self.file.size
        if size > MAX_PICKLE:
            self.refuse("size", f"has {size} bytes, more than the {MAX_PICKLE} that are read")
        described, behind = read_pickle(self.file, 0, size, VOCABULARY)
        if behind != size:
            self.refuse("trailing", f"{size - behind} bytes follow the pickle")
        saved = self.state(described, SAVED)
        stored = self.entries(saved.get("storage_data"))
        tensors, others, left = dict[str, Saved](), dict[str, None](), len(stored)
        for name, pickled in self.entries(saved.get("state_dict_metadata")):
            if not isinstance(name, str):
                self.refuse("metadata", "a name is no text")
            if name in tensors or name in others:
                self.refuse("twice", f"{quoted(name)} is described twice")
            if isinstance(pickled, Made) and pickled.callee == BYTES:
                others[name] = None
            else:
                tensors[name] = self.tensor(name, self.state(pickled, TENSOR), left)
                left -= len(tensors[name].blocks)
        items = self.items(stored)
        expected: set[Key] = {(name, at) for name, tensor in tensors.items() for at, _ in tensor.blocks}
        expected |= {(name, None) for name in others}
        missing, unread = expected - items.keys(), items.keys() - expected
        if missing:
            self.refuse("item", f"{shown(min(missing, key=repr))} is stored nowhere; {len(missing)} such items")
        if unread:
            what = "is stored, but neither a piece of a tensor nor named"
            self.refuse("unread", f"{shown(min(unread, key=repr))} {what}; {len(unread)} such items")
        return Contents(tensors, tuple(others), items, self.beside(saved.get("planner_data")))

    def beside(self, keys: object) -> frozenset[str]:
        """Return the names that their keys, before they were joined, tell to be no weights."""
        pairs = keys.pairs if isinstance(keys, Made) and keys.callee == DICTIONARY else []
        named = ((name, path) for name, path in pairs if isinstance(name, str) and isinstance(path, tuple))
        return beside_the_model({name: [str(key) for key in path] for name, path in named})

    def state(self, value: object, callee: str) -> dict[str, object]:
        """Return the fields of an object of this class; many may share one dictionary of them, so it is short."""
        if not isinstance(value, Made) or value.callee != callee:
            self.refuse("metadata", f"no {callee.rpartition('.')[2]} where one belongs")
        fields = self.entries(value.state)
        if len(fields) > 64:
            self.refuse("metadata", f"a {callee.rpartition('.')[2]} has {len(fields)} fields")
        return {key: field for key, field in fields if isinstance(key, str)}

    def entries(self, value: object) -> list[tuple[object, object]]:
        if not isinstance(value, Made) or value.callee != DICTIONARY:
            self.refuse("metadata", "no dictionary where one belongs")
        return value.pairs

    def tensor(self, name: str, state: Mapping[str, object], most: int) -> Saved:
        """Read a tensor of at most so many pieces; many tensors may share one list of them."""
        properties = state.get("properties")
        fields = properties.state if isinstance(properties, Made) and properties.callee in PROPERTIES else None
        first = fields[0] if isinstance(fields, tuple) and fields else None
        dtype = BY_NAME.get(first.name) if isinstance(first, Global) else None
        if dtype is None:
            self.refuse("metadata", f"{quoted(name)} has no dtype")
        sizes = whole(state.get("size"))
        if sizes is None or len(sizes) > MAX_RANK:
            self.refuse("shape", f"{quoted(name)}: its size is not at most {MAX_RANK} whole numbers")
        if span(dtype, in_values(dtype, sizes)) is None:
            self.refuse("shape", f"{quoted(name)}: {dtype} {list(sizes)[:8]} has more elements than can be counted")
        chunks = state.get("chunks")
        if not isinstance(chunks, list):
            self.refuse("metadata", f"{quoted(name)} has no list of pieces")
        if len(chunks) > most:
            self.refuse("item", f"{quoted(name)} has {len(chunks)} pieces, and {most} items are left to hold them")
        blocks = tuple(self.block(name, self.state(chunk, CHUNK), sizes) for chunk in chunks)
        self.require_tiled(name, sizes, blocks)
        return Saved(dtype, sizes, blocks)

    def block(self, name: str, state: Mapping[str, object], shape: tuple[int, ...]) -> Block:
        at, sizes = whole(state.get("offsets")), whole(state.get("sizes"))
        if at is None or sizes is None or not len(at) == len(sizes) == len(shape):
            self.refuse("piece", f"{quoted(name)}: offsets and sizes of a piece are not {len(shape)} whole numbers")
        if any(start + size > all_ for start, size, all_ in zip(at, sizes, shape, strict=True)):
            what = f"a piece of {list(sizes)[:8]} at {list(at)[:8]} lies outside {list(shape)[:8]}"
            self.refuse("piece", f"{quoted(name)}: {what}")
        return at, sizes

    def require_tiled(self, name: str, shape: tuple[int, ...], blocks: tuple[Block, ...]) -> None:
        """Require that every element is in exactly one piece."""
        covered, elements = sum(math.prod(sizes) for _, sizes in blocks), math.prod(shape)
        if covered != elements or not blocks:
            what = f"its {len(blocks)} pieces hold {covered} elements together, it has {elements}"
            self.refuse("overlap" if covered > elements else "hole", f"{quoted(name)}: {what}")
        try:
            twice = doubled(shape, blocks) if len(blocks) > 1 else None
        except ValueError as problem:
            self.refuse("pieces", f"{quoted(name)}: its {len(blocks)} pieces cut it into {problem}")
        if twice is not None:
            self.refuse("overlap", f"{quoted(name)}: two of its {len(blocks)} pieces hold element {list(twice)[:8]}")

    def items(self, stored: list[tuple[object, object]]) -> dict[Key, Item]:
        found: dict[Key, Item] = {}
        for index, storage in stored:
            fields = self.state(index, INDEX)
            name, offset = fields.get("fqn"), fields.get("offset")
            at = None if offset is None else whole(offset)
            if not isinstance(name, str) or (at is None) != (offset is None):
                self.refuse("metadata", "an item belongs to no name, or to no whole numbers as its place")
            if (name, at) in found:
                self.refuse("twice", f"{shown((name, at))} is stored twice")
            found[name, at] = self.item((name, at), self.state(storage, STORAGE))
        return found

    def item(self, key: Key, state: Mapping[str, object]) -> Item:
        path, start, nbytes = state.get("relative_path"), state.get("offset"), state.get("length")
        if not isinstance(path, str) or not is_plain(path):
            said = quoted(path) if isinstance(path, str) else "no text"
            self.refuse("path", f"{shown(key)} is said to lie in {said}, which is not a plain file name")
        if type(start) is not int or type(nbytes) is not int or start < 0 or nbytes <= 0:
            self.refuse("metadata", f"{shown(key)}: offset and length are not whole numbers")
        if (transforms := state.get("transform_descriptors")) not in (None, [], ()):
            by = transforms[0] if isinstance(transforms, (list, tuple)) else transforms
            how = quoted(by) if isinstance(by, str) else "a transform"
            self.refuse("transformed", f"{shown(key)} is stored through {how}, not as torch.save wrote it")
        return Item(path, start, nbytes)


def doubled(shape: tuple[int, ...], blocks: Sequence[Block]) -> tuple[int, ...] | None:
    """Return an element that two of the blocks inside a shape hold, or None; a ValueError tells of too many cells."""
    edges = []  # cut the shape into cells, so that the work grows with these, not with the pairs of blocks
    for axis, size in enumerate(shape):
        edges.append(sorted({0, size, *(at[axis] for at, _ in blocks), *(at[axis] + of[axis] for at, of in blocks)}))
    most = min(MAX_CELLS, CELLS * (1 + len(blocks)) ** 2)
    if math.prod(len(cuts) - 1 for cuts in edges) > most:
        raise ValueError(f"more than {most} cells")
    numbers = [{edge: number for number, edge in enumerate(cuts)} for cuts in edges]
    filled = np.zeros([len(cuts) - 1 for cuts in edges], bool)
    for at, sizes in blocks:
        corners = zip(at, sizes, numbers, strict=True)
        region = filled[tuple(slice(number[start], number[start + size]) for start, size, number in corners)]
        if region.any():
            place = np.unravel_index(int(region.argmax()), region.shape)
            first = [numbers[axis][start] for axis, start in enumerate(at)]
            return tuple(edges[axis][first[axis] + int(step)] for axis, step in enumerate(place))
        region[...] = True
    return None


def shown(key: Key) -> str:
    """Return a piece, or an item that is no tensor, as a message shows it."""
    name, at = key
    return f"{quoted(name)} from {list(at)[:8]} on" if at else quoted(name)


def refuse(code: str, what: str, file: ReadableFile, remedy: str = "") -> NoReturn:
    """Refuse a distributed checkpoint with `dcp-…`."""
    raise SubjectError(f"dcp-{code}", what, where=file.name, remedy=remedy or REMEDIES.get(code, SAVE_AGAIN))


_refuse_copy = partial(refuse, remedy=COPY_AGAIN)


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """An item's stretch of an open file; its bytes count from its own start."""

    whole: ReadableFile
    start: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.whole.name}, in the item at byte {self.start},"

    def read(self, start: int, stop: int) -> memoryview:
        return self.whole.read(self.start + start, self.start + min(stop, self.size))


def parse(metadata: ReadableFile, folder: Folder) -> tuple[Reading, dict[str, ReadableFile]]:
    """Read the tensors, a note of what is none, and the files by name; refuse with `dcp-…`, `pickle-…` or `zip-…`."""
    contents = _Reader(metadata).contents()
    homes: dict[str, ReadableFile] = {}
    for name in sorted({item.file for item in contents.items.values()}):
        if not folder.holds(name):
            _refuse_copy("file", f"{quoted(name)}, which {METADATA} names, is not beside it", metadata)
        if folder.leads_out(name):
            refuse("path", f"{quoted(name)} is a link that leads out of the directory", metadata, COPY_FILES)
        homes[name] = folder.open(name)
    ends = dict.fromkeys(homes, 0)  # the items of a file follow each other to its end
    for key, item in sorted(contents.items.items(), key=lambda each: each[1]):
        file, cursor = homes[item.file], ends[item.file]
        if item.start < cursor:
            _refuse_copy("overlap", f"{shown(key)} begins {cursor - item.start} bytes before the end of another", file)
        if item.start > cursor:
            _refuse_copy("hole", f"{item.start - cursor} bytes from byte {cursor} on belong to no item", file)
        if item.nbytes > file.size - cursor:
            what = f"{shown(key)} takes {item.nbytes} bytes from byte {cursor} on, {file.size - cursor} are left"
            _refuse_copy("truncated", what, file)
        ends[item.file] += item.nbytes
    for name, end in ends.items():
        if end < homes[name].size:
            _refuse_copy("trailing", f"{homes[name].size - end} bytes follow the last item", homes[name])
    checksums: list[Checksum] = []
    tensors = {name: _tensor(name, contents, homes, checksums) for name in contents.tensors}
    unweighed: dict[str, Scalar] = {"dcp.unweighed_items": len(contents.others)} if contents.others else {}
    reading = Reading(format="torch-dcp", tensors=tensors, metadata=unweighed, checksums=tuple(checksums))
    return reading, {file.name: file for file in (metadata, *homes.values())}


def _tensor(name: str, contents: Contents, homes: Mapping[str, ReadableFile], checksums: list[Checksum]) -> Tensor:
    """Put a tensor together from its pieces, noting the checksums of each."""
    saved = contents.tensors[name]
    pieces = []
    for at, sizes in sorted(saved.blocks):
        item = contents.items[name, at]
        found, sums = _piece((name, at), item, homes[item.file])
        checksums += sums
        if (found.dtype, found.shape) != (saved.dtype, in_values(saved.dtype, sizes)):
            what = f"{shown((name, at))} holds {found.dtype} {list(found.shape)[:8]}"
            refuse("piece", f"{what}, the metadata says {saved.dtype} {list(sizes)[:8]}", homes[item.file])
        pieces.append(Piece(at=at, sizes=sizes, stored=found))
    filled = [piece for piece in pieces if piece.stored.nbytes] or pieces[:1]
    first = filled[0].stored
    shape, nbytes = in_values(saved.dtype, saved.sizes), sum(piece.stored.nbytes for piece in pieces)
    tiled = Pieces(shape=saved.sizes, blocks=tuple(filled)) if len(filled) > 1 else None
    return replace(first, shape=shape, nbytes=nbytes, pieces=tiled, weight=name not in contents.beside)


def _piece(key: Key, item: Item, file: ReadableFile) -> tuple[Tensor, list[Checksum]]:
    """Read the one tensor of an item, and the checksums of its storages; other members are checked against theirs."""
    part, place = _Excerpt(file, item.start, item.nbytes), f"{key[0]} at byte {item.start}"
    if not bytes(part.read(0, 4)).startswith(zip_archive.MAGICS):
        refuse("item", f"{shown(key)} at byte {item.start} is no archive of torch.save", file)
    members = zip_archive.members(part)
    root = torch_file.root_of(members)
    tensors = torch_file.parse(part, members, root).tensors if root is not None else {}
    if root is None or list(tensors) != [WHOLE]:
        refuse("item", f"{shown(key)} at byte {item.start} is {len(tensors)} tensors by name, not one without", file)
    sums = []
    for member in members.values():
        if member.name.startswith(root + torch_file.DATA):
            extent = (item.start + member.start, item.start + member.stop)
            sums.append(Checksum(place=place, file=file.name, parts=(extent,), stored=member.crc))
        else:
            zip_archive.content(part, member, MAX_PICKLE)
    found = tensors[WHOLE]
    file.release(item.start, item.start + item.nbytes)
    return replace(found, name=key[0], file=file.name, offset=found.offset + item.start), sums
