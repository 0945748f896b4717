"""Charts and heatmaps as SVG text: attributes beside classes, so that they read without style."""

import base64
import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any, TypeAlias

from weighbridge.core import dataclass

Number: TypeAlias = float | None
TINY, HUGE = 1e-300, 1e300  # beyond them an axis has no numbers left
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 1160, 240, 70, 26, 16, 36
INK = {"line": "#0b63b5", "other": "#8a5a00", "bad": "#b3261e", "dim": "#5b636d", "grid": "#e6e9ec", "nan": "#a8009e"}
SHADES, SIDE = 64, 128  # of the scale; pixels of a small map
VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
ZERO, ODD, NONE = SHADES, SHADES + 1, SHADES + 2
OF_SIGNS = {ZERO: (179, 38, 30), ODD: (255, 0, 255), NONE: (150, 150, 150)}
SIGNS = {"nan": ("✕", "not finite"), "zeros": ("○", "exactly 0"), "missing": ("▁", "missing")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One course to draw: at each step the least, the median and the greatest number; counts of the three absences."""

    name: str
    step: Sequence[float]
    least: Sequence[Number]
    median: Sequence[Number] = ()
    greatest: Sequence[Number] = ()
    nan: Sequence[int] = ()
    zeros: Sequence[int] = ()
    missing: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at a step, or a span of steps, or a level: what a gate looked at, where it failed, its limit."""

    kind: str  # window, hit, limit
    text: str
    at: float
    to: float = 0.0


@dataclass(frozen=True, slots=True)
class _Axis:
    """A linear or logarithmic scale from numbers to pixels."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        scale = math.log10 if self.log else float
        low, high, value = (scale(one) for one in (self.low, self.high, max(self.low, min(self.high, value))))
        part = (value - low) / (high - low) if high > low else 0.5
        return round(self.begin + part * (self.end - self.begin), 1)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            found = [10.0**power for power in range(first, last + 1, max(1, (last - first) // 8))]
        else:
            size = max((self.high - self.low) / 6, TINY)
            unit = 10.0 ** math.floor(math.log10(size))
            gap = next(unit * one for one in (1, 2, 5, 10) if unit * one >= size)
            found = [gap * (math.ceil(self.low / gap) + turn) for turn in range(8)]
        return [value for value in found if self.low <= value <= self.high]


def tag(name: str, body: str = "", /, **attributes: object) -> str:
    """Return one element; the body is text, or elements made here, never what came from outside."""
    named = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return f"<{name}{named}>{body}</{name}>" if body else f"<{name}{named}/>"


def text(x: float, y: float, words: str, *, dim: bool = True, anchor: str = "start", **more: object) -> str:
    """Return a text of a chart."""
    ink = INK["dim"] if dim else "currentColor"
    return tag("text", escape(words), x=x, y=y, text_anchor=anchor, fill=ink, class_="dim" if dim else "", **more)


def short(value: Number) -> str:
    """Return a number as a chart shows it."""
    return "none" if value is None else f"{value:.4g}"


def curves(title: str, unit: str, lines: Sequence[Line], marks: Sequence[Mark] = ()) -> str:
    """Return courses over steps: a median over its pale band, windows shaded, and signs where there is no number."""
    every = [value for one in lines for part in (one.least, one.greatest) for value in part if value is not None]
    steps = [step for one in lines for step in one.step]
    limits = [mark.at for mark in marks if mark.kind == "limit"]
    log = bool(every) and min(every) > 0 and max(every) > 50 * min(every)
    near = [at for at in limits if every and (not log or at > 0) and at <= 3 * max(map(abs, every))]
    low, high = (min(every + near), max(every + near)) if every else (0.0, 1.0)
    pad = 0.0 if log else (high - low or abs(high) or 1.0) * 0.06
    low, high = max(low - pad, -HUGE), min(high + pad, HUGE)
    y = _Axis(low, high, HEIGHT - BOTTOM, TOP, log)
    x = _Axis(min(steps, default=0), max(steps, default=1), LEFT, WIDTH - RIGHT)
    parts = [*_frame(x, y, f"{title}{f' ({unit})' if unit else ''}{', log scale' if log else ''}")]
    marked = [*_marks(marks, x, y, {mark.at for mark in marks if mark.kind != "limit" or mark.at in near})]
    parts += [one for one in marked if not one.startswith("<text")]
    for index, line in enumerate(lines):
        parts += _course(line, x, y, other=index > 0)
        if len(lines) > 1:
            where, ink = WIDTH - 250 + 130 * index, INK["other" if index else "line"]
            dash = {"stroke_dasharray": "5 3"} if index else {}
            parts.append(tag("line", x1=where, x2=where + 24, y1=14, y2=14, stroke=ink, stroke_width=2,
                             class_=f"l{index}", **dash))  # fmt: skip
            parts.append(text(where + 30, 18, line.name, dim=False))
    parts += [one for one in marked if one.startswith("<text")]  # over the courses
    parts.append(tag("line", class_="cur", stroke=INK["dim"], y1=TOP, y2=HEIGHT - BOTTOM, x1=-9, x2=-9))
    shown = {"x": steps[: len(lines[0].step)], "l": LEFT, "w": WIDTH - LEFT - RIGHT, "W": WIDTH}
    shown["s"] = [{"n": one.name, "v": [_cell(one, at) for at in range(len(one.step))]} for one in lines]
    return svg(HEIGHT, f"{title} over steps", "".join(parts), data_x=json.dumps(shown, separators=(",", ":")))


def _cell(line: Line, at: int) -> str | float | None:
    """Return what a course holds at a place, for the cursor."""
    least = line.least[at]
    for key in ("nan", "missing"):
        counts = getattr(line, key)
        if counts and counts[at] and (least is None or not line.greatest):
            return SIGNS[key][1]
    if not line.greatest or least is None:
        return None if least is None else float(f"{least:.5g}")
    return f"{short(least)} .. {short(line.median[at])} .. {short(line.greatest[at])}"


def svg(height: int, label: str, body: str, **more: object) -> str:
    """Return a chart of all elements in it."""
    return tag("svg", body, viewBox=f"0 0 {WIDTH} {height}", width="100%", role="img", aria_label=label, **more)


def _frame(x: _Axis, y: _Axis, title: str) -> Iterator[str]:
    foot = HEIGHT - BOTTOM
    for value in y.ticks():
        at = y(value)
        yield tag("line", class_="grid", stroke=INK["grid"], x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at)
        yield text(LEFT - 8, at + 4, f"{value:.3g}", anchor="end")
    yield from (text(x(value), foot + 24, f"{value:,.0f}", anchor="middle") for value in x.ticks())
    yield tag("line", class_="axis", stroke=INK["dim"], x1=LEFT, x2=WIDTH - RIGHT, y1=foot, y2=foot)
    yield text(LEFT, TOP - 10, title, dim=False, font_weight="bold")
    yield text(LEFT - 26, foot + 24, "step", anchor="end")


def _marks(marks: Sequence[Mark], x: _Axis, y: _Axis, shown: set[float]) -> Iterator[str]:
    foot, hits = HEIGHT - BOTTOM, 0
    for mark in (one for one in marks if one.at in shown):
        if mark.kind == "window":
            begin, end = x(max(mark.at, x.low)), x(min(mark.to, x.high))
            size = {"x": begin, "y": TOP, "width": round(max(end - begin, 2), 1), "height": foot - TOP}
            yield tag("rect", class_="win", fill=INK["line"], fill_opacity="0.07", **size)
            yield text(end, TOP - 10, mark.text, anchor="end")
        elif mark.kind == "limit":
            at = y(mark.at)
            yield tag("line", class_="lim", stroke=INK["bad"], stroke_dasharray="6 4", x1=LEFT, x2=WIDTH - RIGHT,
                      y1=at, y2=at)  # fmt: skip
            yield text(WIDTH - RIGHT - 4, at + (14 if at < TOP + 14 else -5), mark.text, dim=False, anchor="end")
        elif x.low <= mark.at <= x.high:
            at = x(mark.at)
            yield tag("line", class_="lim", stroke=INK["bad"], stroke_dasharray="2 4", x1=at, x2=at, y1=TOP, y2=foot)
            yield tag("path", class_="hit", fill=INK["bad"], d=f"M{at} {foot + 2}l5 9h-10z")
            anchor = "end" if at > WIDTH * 0.7 else "start"
            yield text(at + (-8 if anchor == "end" else 8), TOP + 20 + 15 * hits, mark.text, dim=False, anchor=anchor)
            hits += 1


def _course(line: Line, x: _Axis, y: _Axis, *, other: bool) -> Iterator[str]:
    where = [x(step) for step in line.step]
    middle = line.median or line.least
    if line.greatest:
        known = [at for at, value in enumerate(line.least) if value is not None]
        edge = [f"{where[at]} {y(line.greatest[at] or 0.0)}" for at in known]
        edge += [f"{where[at]} {y(line.least[at] or 0.0)}" for at in reversed(known)]
        yield tag("path", class_="band", fill=INK["line"], fill_opacity="0.3", d=f"M{'L'.join(edge)}z") if edge else ""
    pieces, alone = list[str](), list[str]()
    for there, group in groupby(range(len(middle)), key=lambda at: middle[at] is not None):
        run = list(group)
        if there:
            head = "M" + "L".join(f"{where[at]} {y(middle[at] or 0.0)}" for at in run)
            (pieces if len(run) > 1 else alone).append(head if len(run) > 1 else head + "h.1")
    dash = {"stroke_dasharray": "5 3"} if other else {}
    ink = INK["other" if other else "line"]
    look = {"fill": "none", "stroke": ink, "stroke_width": "1.6", "stroke_linecap": "round", **dash}
    for drawn, thick in ((pieces, {}), (alone, {"stroke_width": "5", "stroke_dasharray": "none"})):
        yield tag("path", class_="l1" if other else "l0", d="".join(drawn), **{**look, **thick}) if drawn else ""
    yield from () if other else _signs(line, where)


def _signs(line: Line, where: Sequence[float]) -> Iterator[str]:
    """Yield a sign at each place without a number or with exactly 0; of what most hold, only what is not finite."""
    for key, (sign, words) in SIGNS.items():
        at = [where[index] for index, count in enumerate(getattr(line, key)) if count]
        if at and (key == "nan" or len(at) <= len(where) / 2):
            thin = [place for index, place in enumerate(at) if not index or place - at[index - 1] > 4]
            level = {"nan": TOP + 4, "zeros": HEIGHT - BOTTOM + 4, "missing": HEIGHT - BOTTOM + 14}[key]
            signs = "".join(text(place, level, sign, anchor="middle", dim=False) for place in thin)
            yield tag("g", tag("title", words) + signs, class_=f"sign {key}", fill=INK["nan"])


def bars(title: str, rows: Sequence[tuple[str, Number, Number, str]]) -> str:
    """Return a bar a row on a logarithmic scale: solid is its own, pale arrived, red where a word says why."""
    known = [value for _, own, came, _ in rows for value in (own, came) if value and TINY < value < HUGE]
    low, high = (10.0 ** math.floor(math.log10(min(known))), max(known)) if known else (0.1, 1.0)
    left, begin, height = 250, 8, 20
    x = _Axis(low, max(high, low * 10), left, WIDTH - 330, log=True)
    foot = begin + height * len(rows)
    parts = []
    for power in x.ticks():
        at = x(power)
        parts.append(tag("line", class_="grid", stroke=INK["grid"], x1=at, x2=at, y1=begin, y2=foot))
        parts.append(text(at, foot + 16, f"1e{math.log10(power):.0f}", anchor="middle"))
    parts.append(text(left - 30, foot + 16, "log scale", anchor="end"))
    for index, (name, own, came, bad) in enumerate(rows):
        top, ends = begin + height * index, [float(left)]
        cut = name if len(name) <= 34 else f"…{name[-33:]}"
        parts.append(text(left - 8, top + 14, cut, dim=False, anchor="end"))
        for value, kind in ((came, "inh"), (own, "bad" if bad else "own")):
            if value and TINY < value < HUGE:
                ends.append(x(value))
                ink, pale = INK[{"inh": "other", "bad": "bad", "own": "line"}[kind]], "0.35" if kind == "inh" else "1"
                size = {"x": left, "y": top + 3, "width": round(max(ends[-1] - left, 1.0), 1), "height": height - 6}
                parts.append(tag("rect", class_=f"bar {kind}", fill=ink, fill_opacity=pale, **size))
        said = "exactly 0" if own == 0 else short(own)
        said += f" added to {short(came)}" if came and own and came > own else ""  # where the pale bar ends
        parts.append(text(max(ends) + 8, top + 14, f"{said}, {bad}" if bad else said, dim=not bad))
    return svg(foot + 26, title, "".join(parts))


def heatmap(title: str, names: Sequence[str], steps: Sequence[float], cells: Sequence[Sequence[Number]]) -> str:
    """Return a row for each name, a column for each step, logarithmic; signs have colours, and None is missing."""
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
    box = {"x": x, "y": y, "width": width, "height": height, "preserveAspectRatio": "none"}
    return tag("image", class_="pixels", href=f"data:image/png;base64,{base64.b64encode(_png(rows)).decode()}", **box)


def _scale(left: int, top: int, low: float, high: float) -> Iterator[str]:
    inks = (_hex(_colour(turn / 7)) for turn in range(8))
    yield from (tag("rect", x=left + 24 * at, y=top, width=24, height=10, fill=ink) for at, ink in enumerate(inks))
    yield text(left, top + 24, short(low))
    yield text(left + 192, top + 24, short(high), anchor="end")


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
    sized = ((struct.pack(">I", len(body)), kind + body) for kind, body in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(size + one + struct.pack(">I", zlib.crc32(one)) for size, one in sized)
