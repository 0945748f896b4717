"""What a quantity is: the dataclass of its rows or of its record, and the field that names a row's place."""

import enum
from typing import Any, TypeVar

from weighbridge.core import Measurement, Record, Rows, dataclass, field, fields
from weighbridge.core.model import LATER

T = TypeVar("T")


class Form(enum.StrEnum):
    """The shape of what is measured."""

    ROWS = "rows"
    RECORD = "record"
    SERIES = "series"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One quantity: its name, its shape, and the dataclass whose fields say unit, meaning and a typical value.

    `key` is the field that names the place of a row; a series has no dataclass, for it is two arrays.
    """

    name: str
    form: Form
    row: type[Any] = object
    key: str = "name"

    def typical(self) -> dict[str, Any]:
        """Return the fields of a typical row or record, by the key that they have in JSON."""
        known = (item for item in fields(self.row) if not item.later)  # not sealed while it is its default
        return {item.key: item.doc.typical if item.required else item.default for item in known}


def later(default: Any) -> Any:
    """Return the default of a field that came later, and is not sealed while it has it."""
    return field(default=default, metadata={LATER: True})


def rows(name: str, row: type[Any], key: str = "name") -> Quantity:
    """Return a quantity whose value is a table."""
    return Quantity(name=name, form=Form.ROWS, row=row, key=key)


def record(name: str, row: type[Any]) -> Quantity:
    """Return a quantity whose value is one record."""
    return Quantity(name=name, form=Form.RECORD, row=row)


def table_of(measured: object, row: type[T]) -> Rows[T]:
    """Return the table of a measurement, whose rows are of one dataclass; raises TypeError where it is none."""
    value = measured.value if isinstance(measured, Measurement) else None
    if not isinstance(value, Rows) or not all(isinstance(one, row) for one in value.rows):
        raise TypeError(f"not a table of {row.__name__}")
    return value


def rows_of(measured: object, row: type[T]) -> tuple[T, ...]:
    """Return the rows of a measurement whose value is a table; raises as `table_of` does."""
    return table_of(measured, row).rows


def record_of(measured: object, row: type[T]) -> T | None:
    """Return the record of a measurement, None where a trial took it away; raises TypeError where it is another."""
    value = measured.value if isinstance(measured, Measurement) else None
    if not isinstance(value, Record) or not (value.value is None or isinstance(value.value, row)):
        raise TypeError(f"not a record of {row.__name__}")
    return value.value
