"""Moments as evidence writes them: UTC, to the millisecond, in one form. Never asks a clock."""

from __future__ import annotations

from datetime import UTC, datetime

from weighbridge.errors import BundleError

CLOCK_SKEW_S = 300
DAY_S = 86_400


def utc(moment: datetime) -> str:
    """Write a moment: `2026-04-26T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str) -> datetime:
    """Read a moment.

    Raises:
        BundleError: `structure`, where it is not of the one form.
    """
    try:
        read = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    except ValueError:
        read = None
    if read is None or utc(read) != text:
        raise BundleError("structure", f"{text[:40]!r} is no UTC time to the millisecond")
    return read
