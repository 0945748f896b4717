"""Walk over the fields of a protobuf message in a file, every length checked before a look. Knows no schema."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, NoReturn

from weighbridge.core import dataclass
from weighbridge.storage.readable import ReadableFile, refuse_at

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types; 3 and 4 are groups, which ONNX has none of
FIXED: Mapping[int, int] = {FIXED64: 8, FIXED32: 4}
MAX_NUMBER = 10  # bytes
MAX_FIELDS = 1 << 21  # a model of 100,000 nodes has about a million
MAX_TEXT = 1 << 16
FETCH_AGAIN = "export the model again, or fetch it again and compare its size with the original's"


class Field(NamedTuple):
    """One field: its number, wire type and value (0 where it is none), the bytes it fills, and where its tag begins."""

    number: int
    wire: int
    value: int
    start: int
    stop: int
    at: int

    @property
    def nbytes(self) -> int:
        """Return how many bytes it fills."""
        return self.stop - self.start


@dataclass(slots=True)
class Message:
    """A message between two bytes of a file; `spent` counts fields walked over, `form` begins the codes of refusals."""

    file: ReadableFile
    start: int
    stop: int
    spent: list[int]
    form: str

    def within(self, field: Field) -> "Message":
        """Return the bytes of a field as a message."""
        return Message(self.file, field.start, field.stop, self.spent, self.form)

    def fields(self, wanted: Mapping[int, Collection[int]]) -> Iterator[Field]:
        """Yield the fields of these numbers, each of one of its wire types; all others are stepped over."""
        at = self.start
        while at < self.stop:
            field = self._field(at)
            at = field.stop
            if field.wire in wanted.get(field.number, ()):
                yield field
            elif field.number in wanted:
                self.refuse("wire", f"the field {field.number} has the wire type {field.wire}", field.at)

    def collected(self, wanted: Mapping[int, Collection[int]], once: Collection[int]) -> dict[int, list[Field]]:
        """Collect fields by number; those of `once` may be there once only, as readers differ about which they take."""
        found: dict[int, list[Field]] = {number: [] for number in wanted}
        for field in self.fields(wanted):
            found[field.number].append(field)
            if field.number in once and len(found[field.number]) > 1:
                self.refuse("twice", f"the field {field.number} is given twice", field.at)
        return found

    def numbers(self, fields: Collection[Field]) -> list[int]:
        """Read whole numbers, packed into one field or one in each, as unsigned 64-bit ones."""
        found: list[int] = []
        for field in fields:
            if field.wire == VARINT:
                found.append(field.value)
                continue
            at = field.start
            while at < field.stop:
                number, at = self._varint(at, field.stop)
                found.append(number)
        return found

    def text(self, field: Field, what: str) -> str:
        """Read a text, or refuse it with `…-text`."""
        if field.nbytes > MAX_TEXT:
            self.refuse("text", f"{what} is {field.nbytes} bytes long, at most {MAX_TEXT} are read", field.at)
        try:
            return str(self.file.read(field.start, field.stop), "utf-8")
        except UnicodeDecodeError:
            self.refuse("text", f"{what} is not UTF-8", field.start)

    def refuse(self, code: str, what: str, at: int | None = None) -> NoReturn:
        """Refuse the file at this byte."""
        refuse_at(code, what, self.file, self.start if at is None else at, form=self.form, remedy=FETCH_AGAIN)

    def _field(self, at: int) -> Field:
        self.spent[0] += 1
        if self.spent[0] > MAX_FIELDS:
            self.refuse("size", f"more than {MAX_FIELDS} fields", at)
        tag, behind = self._varint(at, self.stop)
        number, wire = tag >> 3, tag & 7
        if number == 0 or number >> 29:
            self.refuse("wire", f"no field has the number {number}", at)
        if wire == VARINT:
            value, stop = self._varint(behind, self.stop)
            return Field(number, wire, value, behind, stop, at)
        if wire in FIXED:
            size = FIXED[wire]
        elif wire == LENGTH:
            size, behind = self._varint(behind, self.stop)
        else:
            self.refuse("wire", f"the field {number} has the wire type {wire}", at)
        if size > self.stop - behind:
            self.refuse("truncated", f"the field {number} takes {size} bytes, {self.stop - behind} are left", at)
        return Field(number, wire, 0, behind, behind + size, at)

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        """Read a number of seven bits a byte, the lowest first, and find the byte behind it."""
        looked = self.file.read(at, min(at + MAX_NUMBER, stop))
        if looked and looked[0] < 0x80:
            return looked[0], at + 1  # nearly all tags and lengths
        value = 0
        for place, byte in enumerate(looked):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80 and not value >> 64:
                return value, at + place + 1
        if len(looked) < MAX_NUMBER:
            self.refuse("truncated", "a number has no end", at)
        return self.refuse("wire", "a number has more than 64 bits", at)
