"""What every reader asks of a file and of its folder, wherever they are. Names are checked by who takes them."""

import hashlib
from collections.abc import Iterable, Iterator
from typing import NoReturn, Protocol

from weighbridge.core import SubjectError, dataclass, field

WINDOW = 8 << 20  # bytes that stay at hand behind the reader
INDEX = "model.safetensors.index.json"
OF_DIFFUSERS = "diffusion_pytorch_model"
INDEXES = INDEX, f"{OF_DIFFUSERS}.safetensors.index.json"
TORCH_NAMES = (
    *("pytorch_model.bin.index.json", "pytorch_model.bin", f"{OF_DIFFUSERS}.bin.index.json", f"{OF_DIFFUSERS}.bin"),
    "consolidated.00.pth",  # Meta's
)
METADATA, DISTCP = ".metadata", ".distcp"  # of PyTorch's distributed checkpoints
# What is asked for where nothing can be listed.
USUAL = (*INDEXES, "model.safetensors", f"{OF_DIFFUSERS}.safetensors", *TORCH_NAMES)

BESIDE = "modules.json", "adapter_config.json", "adapter_model.safetensors"  # also asked for, as parts of a model


class Readable(Protocol):
    """A file, or a part of one that is read as if it were a file by itself."""

    @property
    def name(self) -> str:
        """Return what messages call it."""

    @property
    def size(self) -> int:
        """Return how many bytes it has."""

    def read(self, start: int, stop: int) -> memoryview:
        """Return bytes `start` to `stop`, of which those beyond the end are left out."""


class ReadableFile(Readable, Protocol):
    """One file, open to be read from several threads at once."""

    @property
    def version(self) -> str:
        """Return what differs between this file and a later one of its name."""

    @property
    def identity(self) -> str:
        """Return what no other file has in common with it, whatever path or link led to either; it is never shown."""

    def gather(self, start: int, stop: int) -> memoryview:
        """Return bytes `start` to `stop` in an unknown order; refuse with `remote-order` too many from elsewhere."""

    def release(self, start: int, stop: int) -> None:
        """Let go of bytes that are not needed for now; reading them again brings them back."""

    def windows(self, start: int, stop: int, size: int) -> Iterator[memoryview]:
        """Yield bytes `start` to `stop` in steps of `size`, in constant memory; refuse with `subject-changed`."""

    def require_unchanged(self) -> None:
        """Raise `subject-changed` where the file is no longer what it was when it was opened."""


class Folder(Protocol):
    """A folder; `name` is what messages call it, `home` what no other folder has in common, whatever leads there."""

    @property
    def name(self) -> str:
        """Return the name."""

    @property
    def home(self) -> str:
        """Return where it is, without links."""

    def holds(self, name: str) -> bool:
        """Return whether there is something of this name."""

    def is_visible(self, name: str) -> bool:
        """Return whether there is something of this name that may be seen."""

    def leads_out(self, name: str) -> bool:
        """Return whether a name leads out of it."""

    def names(self) -> list[str]:
        """Return the names of its files."""

    def below(self) -> Iterable[str]:
        """Return the path of every file in it and below, from it on, with slashes."""

    def size(self, name: str) -> int:
        """Return how many bytes a file has."""

    def open(self, name: str) -> ReadableFile:
        """Return a file, opened; refuse one that cannot be read."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a checkpoint is: its folder, its file (none where the folder was named), and the URL that said so."""

    folder: Folder
    file: ReadableFile | None = None
    url: str = field(default="", repr=False)


def is_plain(name: str) -> bool:
    """Return whether a name from outside is that of a file in the folder itself, and no path."""
    return name not in ("", ".", "..") and not any(sign in name for sign in "/\\\0")


def refuse_at(code: str, what: str, file: Readable, at: int = 0, *, form: str, remedy: str) -> NoReturn:
    """Refuse a file of a format, with `FORM-CODE` and the byte."""
    raise SubjectError(f"{form}-{code}", what, where=f"{file.name} at byte {at}", remedy=remedy)


def sha256(file: ReadableFile) -> str:
    """Return the digest of a whole file."""
    digest = hashlib.sha256()
    for window in file.windows(0, file.size, WINDOW):
        digest.update(window)
    return digest.hexdigest()
