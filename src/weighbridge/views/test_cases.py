"""A report of tests as a subject: the bytes that a test runner wrote, and where they are from."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from weighbridge.core import Origin, SubjectError, dataclass, local_path, read_regular_file, sha256

MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class ReportView:
    """The bytes of a report, and the path that they were read from."""

    data: bytes
    path: str
    origin: ClassVar = Origin.FIXTURE  # it does not say of which program, commit and host it is

    def digest(self) -> Mapping[str, str]:
        """Return the SHA-256 of the file."""
        return {Path(self.path).name: sha256(self.data)}


def open_report(target: str) -> ReportView:
    """Read the bytes of a report; refuse what is no regular file here, is larger than 64 MiB, or is UTF-16."""
    if (path := local_path(target)) is None:
        raise SubjectError("report-elsewhere", "is a URL", where=target, remedy="fetch it, and bind its path")
    view = ReportView(read_regular_file(path, MAX_BYTES, SubjectError), str(path))
    if view.data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SubjectError("report-encoding", "is UTF-16", where=view.path, remedy="write it as UTF-8")
    return view
