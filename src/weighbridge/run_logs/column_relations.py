"""What the columns of a run, float64 `[rows]`, have to do with one another, as plain numbers; no threshold."""

import math
from collections.abc import Iterator, Mapping, Sequence

from weighbridge.core import np
from weighbridge.quantities.runs import RateAgreement, Relation
from weighbridge.run_logs.column_statistics import Dense, Floats, Marks
from weighbridge.run_logs.log_table import STEP

RANKED_ROWS = 1 << 14  # rank correlations are of at most so many evenly spaced rows
PARTNER_ROWS = 256  # a relation's partner is chosen on so many rows; its deviation is over all
MANY_COLUMNS = 32  # beyond, pairs that were not logged in the same rows are ranked on fewer


def rank_correlations(columns: Mapping[str, Dense]) -> Mapping[str, tuple[float, str]]:
    """Return each column's largest |rank correlation| × √n with another, ties at their mean rank, and that other."""
    names = list(columns)
    some = [_every(columns[name], RANKED_ROWS) for name in names]
    fewer = some if len(names) <= MANY_COLUMNS else [_every(columns[name], PARTNER_ROWS) for name in names]
    strengths, settled = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)), dtype=bool)
    together: dict[bytes, list[int]] = {}  # columns with a number in the very same rows
    for place, column in enumerate(some):
        together.setdefault(column.known.tobytes(), []).append(place)
    for group in together.values():
        strengths[np.ix_(group, group)] = _correlations([some[place].values[some[place].known] for place in group])
        settled[np.ix_(group, group)] = True
    for left, right in np.argwhere(np.tril(~settled, -1)):
        both = fewer[left].known & fewer[right].known
        crossed = _correlations([fewer[left].values[both], fewer[right].values[both]])
        strengths[left, right] = strengths[right, left] = crossed[0, 1]
    np.fill_diagonal(strengths, 0.0)
    best = [(float(row.max()), names[int(row.argmax())]) for row in strengths]
    return {name: found if found[0] > 0 else (0.0, "") for name, found in zip(names, best, strict=True)}


def _every(column: Dense, rows: int) -> Dense:
    """Return at most so many evenly spaced rows of a column."""
    stride = -(-len(column.values) // rows) or 1
    return Dense(column.values[::stride], column.state[::stride], column.known[::stride])


def _correlations(columns: Sequence[Floats]) -> Floats:
    """Return |correlation| × √n of the ranks `[columns, columns]`; 0 for two points, which always lie on a line."""
    rows = len(columns[0])
    if rows <= 2:
        return np.zeros((len(columns), len(columns)))
    ranked = np.empty((len(columns), rows))
    for row, values in zip(ranked, columns, strict=True):
        _, place, times = np.unique(values, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(times) - (times - 1) / 2)[place]
        row[:] = ranks - ranks.mean()
    squares = (ranked * ranked).sum(axis=1)
    norm = np.sqrt(squares[:, None] * squares[None, :])
    crossed: Floats = np.divide(np.abs(ranked @ ranked.T), norm, where=norm > 0, out=np.zeros_like(norm))
    return crossed * math.sqrt(rows)


def relations(columns: Mapping[str, Dense]) -> Mapping[str, tuple[Relation, ...]]:
    """Return each column's steadiest product and quotient with another column, and its closest line in the step."""
    names = [name for name in columns if name != STEP]
    partners = {kind: _partners(kind, columns) for kind in ("product", "quotient")}
    found: dict[str, tuple[Relation, ...]] = {STEP: ()}
    for name in names:
        with_another = {kind: chosen[name] for kind, chosen in partners.items() if chosen[name]}
        related = [_relation(kind, columns, name, other, names) for kind, other in with_another.items()]
        found[name] = (*related, *_line(columns[name], columns[STEP]))
    return found


def _partners(kind: str, columns: Mapping[str, Dense]) -> Mapping[str, str]:
    """Choose for each column the other one whose product or quotient with it is the steadiest on a few rows."""
    few = {name: _every(column, PARTNER_ROWS) for name, column in columns.items()}
    values = np.stack([column.values for column in few.values()])
    usable = np.stack([column.known & (column.values != 0) for column in few.values()])
    varies = {name: len(set(column.values[column.known].tolist())) > 1 for name, column in few.items()}
    partners: dict[str, str] = {}
    for place, name in enumerate(few):
        deviations = _formed(kind, values[place], values, usable & usable[place])[0] if varies[name] else ()
        near = [(float(deviation), other) for deviation, other in zip(deviations, few, strict=False) if varies[other]]
        partners[name] = min((one for one in near if one[0] < math.inf and one[1] != name), default=(0.0, ""))[1]
    return partners


def _formed(kind: str, one: Floats, others: Floats, both: Marks) -> tuple[Floats, Floats]:
    """Return how much a column's product or quotient with each other varies, and its middle; infinite where none is."""
    with np.errstate(all="ignore"):
        formed = one * others if kind == "product" else one / others
        low, high = np.where(both, formed, math.inf).min(axis=1), np.where(both, formed, -math.inf).max(axis=1)
        size = np.abs(low) + np.abs(high)
        deviation = np.where((size > 0) & np.isfinite(size), (high - low) / size, 1.0)
        finite = np.where(both, np.isfinite(formed), True).all(axis=1) & both.any(axis=1)
        return np.where(finite, deviation, math.inf), (low + high) / 2


def _relation(kind: str, columns: Mapping[str, Dense], name: str, partner: str, names: Sequence[str]) -> Relation:
    one, other = columns[name], columns[partner]
    both = one.known & other.known & (one.values != 0) & (other.values != 0)
    deviations, middles = _formed(kind, one.values, other.values[None], both[None])
    able = bool(deviations[0] < math.inf)
    deviation, constant = (float(deviations[0]), float(middles[0])) if able else (1.0, 0.0)
    earlier, over = partner == STEP or names.index(partner) < names.index(name), int(both.sum()) if able else 0
    return Relation(kind=kind, partner=partner, earlier=earlier, over=over, deviation=deviation, constant=constant)


def _line(column: Dense, steps: Dense) -> Iterator[Relation]:
    both = column.known & steps.known
    values, step = column.values[both], steps.values[both]
    if len(values) < 3 or values.min() == values.max() or step.min() == step.max():
        return
    scale = float(np.abs(values).max())
    unit, along = values / scale, step - step.mean()
    slope = float((along * (unit - unit.mean())).sum()) / float((along * along).sum())
    residual = float(np.abs(unit - unit.mean() - slope * along).max()) / float(unit.max() - unit.min())
    over, constant = len(values), slope * scale
    yield Relation(kind="linear", partner=STEP, earlier=True, over=over, deviation=residual, constant=constant)


def rate_agreement(columns: Mapping[str, Dense]) -> RateAgreement | None:
    """Return the median of tokens_per_sec × wall_ms / 1000 / tokens over the rows that have all three, if any do."""
    if not {"tokens", "wall_ms"} <= columns.keys():
        return None
    rate, wall, tokens = columns["tokens_per_sec"], columns["wall_ms"], columns["tokens"]
    all_three = rate.known & wall.known & tokens.known & (tokens.values > 0)
    if not all_three.any():
        return None
    ratio = rate.values[all_three] * wall.values[all_three] / 1000 / tokens.values[all_three]
    return RateAgreement(rows=len(ratio), over_tokens=float(np.median(ratio)))
