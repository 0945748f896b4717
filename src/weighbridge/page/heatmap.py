"""A heatmap as palette PNG inside an SVG, with colours of their own for what is no number on its scale."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weighbridge.page.drawing import RIGHT, WIDTH, Number, svg, tag, text

SHADES, SIDE = 64, 128  # of the scale; pixels of a small map
VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
ZERO, ODD, NONE = SHADES, SHADES + 1, SHADES + 2
OF_SIGNS = {ZERO: (179, 38, 30), ODD: (255, 0, 255), NONE: (150, 150, 150)}


def heatmap(title: str, names: Sequence[str], steps: Sequence[float], cells: Sequence[Sequence[Number]]) -> str:
    """Return one row a name and one column a step, on a logarithmic scale; three signs are colours of their own.

    A cell that is None is missing.
    """
    known = [value for row in cells for value in row if value and 0 < value < math.inf]
    low, high = (math.log10(min(known)), math.log10(max(known))) if known else (0.0, 1.0)
    high = max(high, low + 1e-9)

    def shade(value: Number) -> int:
        if value is None or value == 0:
            return NONE if value is None else ZERO
        return int((math.log10(value) - low) / (high - low) * (SHADES - 1)) if 0 < value < math.inf else ODD

    left, size = 150, max(8, min(26, 520 // max(len(names), 1)))
    foot, wide = 12 + size * len(names), WIDTH - 150 - RIGHT
    parts = [_image([bytes(map(shade, row)) for row in cells], left, 12, wide, size * len(names))]
    every = max(1, -(-12 // size))
    for index, name in enumerate(names[::every]):
        cut = name if len(name) <= 20 else f"…{name[-19:]}"
        parts.append(text(left - 8, 12 + size * index * every + size / 2 + 4, cut, dim=False, anchor="end"))
    for at in range(0, len(steps), -(-len(steps) // 12)):
        middle = round(left + wide * (at + 0.5) / len(steps), 1)
        parts.append(text(middle, foot + 16, f"{steps[at]:,.0f}", anchor="middle"))
    parts.append(text(left - 8, foot + 16, "step", anchor="end"))
    parts += _scale(left, foot + 28, 10**low, 10**high)
    for turn, (key, words) in enumerate(zip(OF_SIGNS, ("exactly 0", "not finite", "missing"), strict=True)):
        ink, at = _hex(OF_SIGNS[key]), left + 240 + 130 * turn
        parts.append(tag("rect", x=at, y=foot + 28, width=24, height=10, fill=ink))
        parts.append(text(at + 30, foot + 37, words, dim=False))
    shown: dict[str, Any] = {"l": left, "t": 12, "w": wide, "h": size * len(names), "W": WIDTH, "H": foot + 58}
    shown |= {"n": names, "x": steps, "lo": round(low, 3), "hi": round(high, 3), "k": SHADES}
    return svg(foot + 58, title, "".join(parts), data_h=json.dumps(shown, separators=(",", ":")))


def grids(title: str, maps: Mapping[str, Sequence[Sequence[Number]]]) -> str:
    """Return small square maps beside one another on one linear scale; a cell that is None is missing."""
    known = [value for one in maps.values() for row in one for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    across, parts = WIDTH // (SIDE + 16), list[str]()

    def shade(value: Number) -> int:
        return NONE if value is None else int((value - low) / (high - low or 1.0) * (SHADES - 1))

    for at, (name, one) in enumerate(maps.items()):
        x, y = at % across * (SIDE + 16), at // across * (SIDE + 28) + 18
        parts.append(text(x, y - 5, name if len(name) <= 22 else f"…{name[-21:]}"))
        parts.append(_image([bytes(map(shade, row)) for row in one], x, y, SIDE, SIDE))
    foot = -(-len(maps) // across) * (SIDE + 28) + 8
    return svg(foot + 30, title, "".join([*parts, *_scale(0, foot, low, high)]))


def _image(rows: Sequence[bytes], x: int, y: int, width: int, height: int) -> str:
    href = f"data:image/png;base64,{base64.b64encode(_png(rows)).decode()}"
    box = {"x": x, "y": y, "width": width, "height": height, "preserveAspectRatio": "none"}
    return tag("image", class_="pixels", href=href, **box)


def _scale(left: int, top: int, low: float, high: float) -> Iterator[str]:
    inks = (_hex(_colour(turn / 7)) for turn in range(8))
    yield from (tag("rect", x=left + 24 * at, y=top, width=24, height=10, fill=ink) for at, ink in enumerate(inks))
    yield text(left, top + 24, f"{low:.1e}")
    yield text(left + 192, top + 24, f"{high:.1e}", anchor="end")


def _hex(colour: Sequence[int]) -> str:
    return f"#{bytes(colour).hex()}"


def _colour(part: float) -> tuple[int, ...]:
    at = min(int(part * (len(VIRIDIS) - 1)), len(VIRIDIS) - 2)
    rest = part * (len(VIRIDIS) - 1) - at
    return tuple(round(one + (other - one) * rest) for one, other in zip(VIRIDIS[at], VIRIDIS[at + 1], strict=True))


def _png(rows: Sequence[bytes]) -> bytes:
    """Return an image of one byte a pixel, by the palette."""
    palette = b"".join(bytes(_colour(turn / (SHADES - 1))) for turn in range(SHADES))
    palette += b"".join(map(bytes, OF_SIGNS.values()))
    head = struct.pack(">IIBBBBB", max(len(rows[0]), 1) if rows else 1, max(len(rows), 1), 8, 3, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows) or b"\0\0", 9)
    chunks = ((b"IHDR", head), (b"PLTE", palette), (b"IDAT", data), (b"IEND", b""))
    made = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)
