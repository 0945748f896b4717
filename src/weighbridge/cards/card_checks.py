"""Show that the tool works here: examples judged, specimens measured, passes falsified, as an evaluation does it."""

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from weighbridge import gates, quantities, verifiers
from weighbridge.cards.words import GateCard, Specimen, VerifierCard, any_gate, hints, read_card, render, unfilled
from weighbridge.clauses.kind import Kind
from weighbridge.clauses.mutations import bounding, nudged
from weighbridge.contract import strict_yaml
from weighbridge.core import ContractError, PluginError, SubjectError, SubjectKind, WeighbridgeError, data_path, model
from weighbridge.core.canonical import build
from weighbridge.core.errors import FAULTS, show_traceback
from weighbridge.core.frozen import dataclass
from weighbridge.core.limits import LimitsError, nearest, plain, read
from weighbridge.core.plugins import GROUPS, Brought, entry_points, package, used, what_is
from weighbridge.evaluation.binding import Binding
from weighbridge.evaluation.runner import lay_canary
from weighbridge.formats import detect
from weighbridge.gates import KINDS
from weighbridge.judging.judging import falsify
from weighbridge.quantities.base import Form, Quantity
from weighbridge.report import formats as reports
from weighbridge.run_logs.formats import recognition
from weighbridge.verifiers import MODULES, VERIFIERS
from weighbridge.verifiers.verifier import Verifier

C = TypeVar("C")
EVERY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing tried: what, and what was wrong with it, if anything. `skipped` says why it was not tried."""

    name: str
    wrong: tuple[str, ...] = ()
    skipped: str = ""


def selftest(cards: Path | None = None, names: Collection[str] = (), *more: Brought[Any]) -> Iterator[Check]:
    """Run the checks of this installation and `more` tables of plug-ins, of another folder of cards, or those named."""
    root = (data_path("gates"), data_path("verifiers")) if cards is None else (cards / "gates", cards / "verifiers")
    of_gates, of_verifiers = (sorted(folder.glob("*.yaml")) for folder in root)
    if cards is None and not names:
        yield _same("every gate kind has its card", {path.stem for path in of_gates}, set(gates.OWN))
        measured = {read_card(VerifierCard, path).quantity for path in of_verifiers}
        yield _same("every quantity has its card", measured, {quantity for quantity, _ in MODULES})
    if cards is None:
        yield from (check for check in plugin_checks(*more) if not names or check.wrong)
        of_gates += _brought(gates.BROUGHT)
        of_verifiers += _brought(verifiers.BROUGHT)
    known = {path.stem for path in (*of_gates, *of_verifiers)}
    if cards is None:  # what is brought and lacks a card, or cannot be imported, is said above
        known |= {name for group, name in entry_points() if group in ("gates", "verifiers")}
    for name in names:
        if name not in known:
            yield Check(name=name, wrong=(f"there is no card {name}.yaml in gates/ or verifiers/",))
    for path in (path for path in of_gates if not names or path.stem in names):
        yield from _of_card(GateCard, path, check_gate_card)
    for path in (path for path in of_verifiers if not names or path.stem in names):
        check = functools.partial(check_verifier_card, specimens=path.parent / "specimens")
        yield from _of_card(VerifierCard, path, check)


def _of_card(cls: type[C], path: Path, check: Callable[[C], Iterator[Check]]) -> Iterator[Check]:
    """Yield the checks of a card; one that cannot be used, or whose code raises, is wrong, and ends no other's."""
    try:
        yield from check(read_card(cls, path))
    except ContractError as error:
        yield Check(name=f"{path.stem}: its card can be used", wrong=tuple(str(error).splitlines()))
    except FAULTS as error:  # whatever somebody's judge or verifier raises
        show_traceback(error)
        brought = [one.of for what in ("kind", "verifier") for one in used(what, (path.stem,))]
        name = f"{path.stem}: its code runs{''.join(f' ({of})' for of in brought)}"
        yield Check(name=name, wrong=(f"{type(error).__name__}: {error}",))


def _brought(table: Brought[Any]) -> Iterator[Path]:
    """Yield the cards that lie beside what other packages bring; `plugin_checks` names a package without them."""
    for name in table:
        with contextlib.suppress(PluginError):
            yield table.beside(name, f"{name}.yaml")


def plugin_checks(*more: Brought[Any]) -> Iterator[Check]:
    """Yield for everything that other packages bring whether it can be used, under the package that it is from."""
    rooms = (gates, quantities, verifiers, detect, recognition, reports)
    tables: dict[str, Brought[Any]] = {table.what: table for table in (*(room.BROUGHT for room in rooms), *more)}
    for (group, name), entries in entry_points().items():
        for entry in entries:
            what, wrong = group.removesuffix("s"), ""
            try:
                if group in GROUPS:
                    what = what_is(entry)
                    wrong = _missing(tables[what], name) if what in tables else ""
                else:
                    wrong = f"there is no group weighbridge.{group}{nearest(group, GROUPS)}"
            except (PluginError, ContractError) as error:
                wrong = f"{error.code}: {error.what}"
            yield Check(name=f"{what} {name}: {package(entry)}", wrong=(wrong,) if wrong else ())


def _missing(table: Brought[Any], name: str) -> str:
    table.entry(name)
    if table.what == "verifier" and name not in quantities.QUANTITIES:
        return f"no package brings the quantity {name!r}: list it under weighbridge.gates"
    return _uncarded(table, name) if table.what in ("kind", "verifier") else ""


def _uncarded(table: Brought[Any], name: str) -> str:
    path = table.beside(name, f"{name}.yaml")
    cls: type[GateCard | VerifierCard] = GateCard if table.what == "kind" else VerifierCard
    try:
        card = read_card(cls, path)
    except ContractError as error:
        return f"its card cannot be used: {str(error.problems[0]).splitlines()[0]}"
    if isinstance(card, GateCard):
        key, of, filled = "kind", card.kind, bool(card.asks and card.examples)
    else:
        key, of, filled = "quantity", card.quantity, bool(card.measures and card.specimens)
    if of != name:
        return f"its card {path} says {key}: {of}; what is brought is {name}"
    return "" if filled else f"its card {path.name} is not filled in: `weighbridge selftest {name}` says what it lacks"


def _same(name: str, cards: set[str], table: set[str]) -> Check:
    wrong = [f"{word}: a card without code" for word in sorted(cards - table)]
    wrong += [f"{word}: no card" for word in sorted(table - cards)]
    return Check(name=name, wrong=tuple(wrong))


def check_gate_card(card: GateCard) -> Iterator[Check]:
    """Yield the checks of one card: its codes, its examples, and for each limit an example on it and one beyond."""
    if (kind := KINDS.get(card.kind)) is None:
        yield Check(name=card.kind, wrong=(f"no gate kind {card.kind!r}{nearest(card.kind, KINDS)}",))
        return
    try:
        judged = [(example, kind.judge(example.evidence, example.limits)) for example in examples(card, kind)]
    except (WeighbridgeError, LimitsError) as error:
        yield Check(name=card.kind, wrong=(str(error),))
        return
    shown_of = {"asks": card.asks, "why": card.why, "passes": card.passes, **card.roles}
    shown_of |= {code: words.says for code, words in card.codes.items()}
    yield Check(name=f"{card.kind}: every word is written", wrong=tuple(_unwritten(shown_of)))
    own = set(kind.codes) - (set(any_gate()) - set(card.codes))
    yield _same(f"{card.kind}: every code has its words", set(card.codes), own)
    yield Check(name=f"{card.kind}: every code has its example", wrong=tuple(_unshown(card, judged)))
    name = f"{card.kind}: every limit has an example on it and one beyond"
    yield Check(name=name, wrong=tuple(_untried(kind, judged)))
    for example, verdict in judged:
        yield Check(name=f"{card.kind}: {example.name}", wrong=tuple(_differs(card, kind, example, verdict)))


def _unwritten(words: Mapping[str, object]) -> Iterator[str]:
    return (f"nothing is written for {word!r}" for word, written in words.items() if not written)


def _unshown(card: GateCard, judged: "Sequence[tuple[Example, model.Verdict]]") -> Iterator[str]:
    """Yield the codes that no example comes to or whose words none demands, and the outcomes that none shows."""
    for code in ("pass", *card.codes):
        shown = [example for example, verdict in judged if code in {verdict.code, *(o.code for o in verdict.offences)}]
        if not shown:
            yield f"no example comes to {code!r}"
        elif all(example.says is None for example in shown):
            yield f"no example says what {code!r} says"
    own = {verdict.outcome for example, verdict in judged if not example.shared}
    missing = {model.Outcome.PASS, model.Outcome.FAIL, model.Outcome.BLOCKED} - own
    yield from (f"no example is {outcome}" for outcome in missing)


def _untried(kind: Kind[Any], judged: "Sequence[tuple[Example, model.Verdict]]") -> Iterator[str]:
    """Yield each bound of a limit that no example stands on, or that none lies just beyond."""
    bounds = {(doc.must, name) for example, _ in judged for doc, name, _ in bounding(example.limits) if doc.must}
    for must, name in sorted(bounds):
        shown = {
            where
            for example, verdict in judged
            for where, changed in nudged(example.limits, name)
            if (again := kind.judge(example.evidence, changed)) != verdict
            and (again.outcome, again.code) != (verdict.outcome, verdict.code)
        }
        yield from (f"no example lies {where} {name} ({must})" for where in ("on", "beyond") if where not in shown)


def _differs(card: GateCard, kind: Kind[Any], example: "Example", verdict: model.Verdict) -> Iterator[str]:
    if verdict.outcome is not example.outcome:
        yield f"came to {verdict.outcome} ({verdict.code}), not {example.outcome}"
    said = render(card, verdict)
    if example.says is not None and said != list(example.says):
        yield f"said {said}, not {list(example.says)}"
    for text, figures in hints(card, verdict):
        yield from (f"no figure fills {{{name}}} in {text!r}" for name in unfilled(text, figures))
    if verdict.outcome is model.Outcome.PASS:
        for trial in falsify(kind, example.evidence, example.limits, verdict):
            if trial.result is model.TrialResult.SURVIVED:
                yield f"the pass cannot fail: {trial.name!r} ({trial.code}) survived"


def check_verifier_card(card: VerifierCard, specimens: Path) -> Iterator[Check]:
    """Measure every specimen of a card, and lay the canary over each."""
    verifier = VERIFIERS.get((card.quantity, tuple(SubjectKind(kind) for kind in card.subjects)))
    if verifier is None:
        yield Check(name=card.quantity, wrong=(f"no verifier measures {card.quantity!r} of {list(card.subjects)}",))
        return
    words = {word: getattr(card, word) for word in ("measures", "method", "pitfalls", "canary", "specimens")}
    # Words alone are no check that passed: a card whose specimens were all skipped showed nothing.
    if unwritten := tuple(_unwritten(words)):
        yield Check(name=f"{card.quantity}: every word is written", wrong=unwritten)
    for specimen in card.specimens:
        name = f"{verifier.quantity}: {specimen.name}"
        if specimen.needs and importlib.util.find_spec(specimen.needs) is None:
            yield Check(name=name, skipped=f"needs {specimen.needs}")
            continue
        try:
            wrong = tuple(_compare_specimen(verifier, specimen, specimens))
        except SubjectError as error:
            wrong = () if error.code == specimen.error else (f"refused with {error.code!r}: {error.what}",)
        yield Check(name=name, wrong=wrong)


def _compare_specimen(verifier: Verifier, specimen: Specimen, folder: Path) -> Iterator[str]:
    bound: dict[str, Any] = {"subject": "specimen", "instance": "default", "by_hand": False}
    pairs = zip(verifier.kinds, specimen.subjects, strict=True)
    targets = ((kind, path if kind is SubjectKind.COMMAND else str(folder / path)) for kind, path in pairs)
    views = tuple(Binding(**bound, kind=kind, target=target).open() for kind, target in targets)
    if specimen.subjects and not specimen.expects and not specimen.error:
        yield "expects nothing, so it shows nothing"
    options: Mapping[str, model.Json] = dict(specimen.options)  # type: ignore[arg-type]
    result = verifier.measure(views, options)
    if specimen.error:
        yield f"was measured, not refused with {specimen.error!r}"
    yield from _differences(result, specimen.expects)
    if isinstance(result, model.Measurement):
        canary = lay_canary(verifier, views, options, result)
        if canary.applied and not canary.seen:
            yield f"blind: {canary.name} at {canary.place} was not seen"


def _differences(result: model.Measurement | model.Unmeasured, expects: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(result, model.Unmeasured):
        if expects.get("unmeasured") != result.code:
            yield f"unmeasured: {result.code}"
        return
    found: dict[str, Any]
    match result.value:
        case model.Record(fields):
            found = plain(fields)
        case model.Rows(key, rows):
            found = {str(getattr(row, key)): plain(row) for row in rows}
        case model.Series(step, value):
            found = {"step": list(step), "value": list(value)}
    yield from _subset(expects, found, "")


def _subset(expected: Any, found: Any, at: str) -> Iterator[str]:
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        for key, value in expected.items():
            yield from _subset(value, found.get(key), f"{at}/{key}")
    elif expected != found:
        yield f"{at}: {found!r}, not {expected!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One judgement that must come out as written: the limits, the evidence by need, the outcome and its words."""

    name: str
    limits: Any
    evidence: Mapping[str, model.Measurement]
    outcome: model.Outcome
    says: tuple[str, ...] | None  # None where no words are demanded
    shared: bool  # of a family, not of the card


def examples(card: GateCard, kind: Kind[Any]) -> "Iterator[Example]":
    """Yield the examples of a card and of its families, or raise `card` for one that kind or quantity refuses.

    What all start from (`given`) is said once, and each says only what is otherwise:

        given: {with: {below_ms: 110}, times: {at: wall_ms, values: [100.0, 101.0]}, columns: {wall_ms: {}}}
        examples: [{PASS: under the budget}, {FAIL: one outlier, times: {"1": 190.0}, says: "…"}]

    `with` gives limits. A table maps places to fields, over the typical row of its quantity; `null` takes a place
    away, and `"*"` stands for every place; of a field that is a record itself, only what is named changes. A record
    gives fields over the typical record. A series has its column's name (`at`), its `values` and their `steps` (else
    from 0 on); a whole number as key is a step whose value is another, or `null` for none. A need that is `null` has
    nothing in it. `says` are the exact words, demanded of one example a code.

    What a family of kinds asks is shown once, in `gates/families/`: a kind runs those of its codes over its own
    `given`.
    """
    yield from _examples(card, kind, card.given, card.examples, shared=False)
    for family in kind.families:
        path, judged = data_path("gates") / "families" / f"{family}.yaml", _mapping(card.given.get("samples")).get("at")
        shown = strict_yaml.load(path.read_bytes().replace(b"<judged>", str(judged).encode()), where=str(path)).data
        over = {need: {**_mapping(card.given.get(need)), **given} for need, given in shown["given"].items()}
        for bodies in (bodies for code, bodies in shown["examples"].items() if code in kind.codes):
            yield from _examples(card, kind, {**card.given, **over}, bodies, shared=True)


def _examples(
    card: GateCard, kind: Kind[Any], given: Mapping[str, Any], bodies: Sequence[Mapping[str, Any]], *, shared: bool
) -> "Iterator[Example]":
    for body in bodies:
        outcome = next((outcome for outcome in model.Outcome if outcome in body), None)
        if outcome is None:
            raise ContractError("card", f"an example of {card.kind} begins with none of {', '.join(model.Outcome)}")
        name = str(body[outcome])
        if unknown := sorted(set(body) - {outcome, "with", "says", *kind.needs}):
            raise ContractError("card", f"{card.kind}: {name}: unknown key {unknown[0]!r}")
        says = body.get("says")
        yield Example(
            name=name,
            limits=read(kind.limits, {**_mapping(given.get("with")), **_mapping(body.get("with"))}),
            evidence={
                need: _measured(quantities.QUANTITIES[wanted.quantity], given.get(need), body.get(need, {}))
                for need, wanted in kind.needs.items()
                if need in given or need in body
            },
            outcome=outcome,
            says=None if says is None else (says,) if isinstance(says, str) else tuple(says),
            shared=shared,
        )


def _mapping(data: Any) -> Mapping[Any, Any]:
    return data if isinstance(data, Mapping) else {}


def _measured(known: Quantity, given: Any, changed: Any) -> model.Measurement:
    given, changed, nothing = _mapping(given), _mapping(changed), changed is None
    value: model.Value
    match known.form:
        case Form.ROWS:
            value = model.Rows(known.key, tuple(_rows(known, given, changed)))
        case Form.RECORD:
            value = model.Record(None if nothing else _typed(known, {**given, **changed}))
        case Form.SERIES:
            value = _series({**given, **changed})
    at = {**given, **changed}.get("at", "") if known.form is Form.SERIES else ""
    return model.Measurement(quantity=known.name, value=value, by="example", at=str(at), examined=1, total=1)


def _rows(known: Quantity, given: Mapping[str, Any], changed: Mapping[str, Any]) -> Iterator[Any]:
    every = changed.get(EVERY, {})
    kept = given.items() if every is not None else ()
    places: dict[str, Any] = {place: {**_mapping(row), **every} for place, row in kept}
    for place, row in changed.items():
        if place != EVERY:
            places[place] = None if row is None else _changed(places.get(place, {}), row, known.row)
    return (_typed(known, {**row, known.key: place}) for place, row in places.items() if row is not None)


def _series(body: Mapping[str, Any]) -> model.Series:
    values = body.get("values", ())
    samples = dict(zip(body.get("steps", range(len(values))), values, strict=True))
    if len(samples) != len(values):  # steps that repeat or fall: as they stand
        return model.Series(tuple(body["steps"]), tuple(map(float, values)))
    changed = {int(step): value for step, value in body.items() if str(step).lstrip("-").isdigit()}
    samples = {step: value for step, value in {**samples, **changed}.items() if value is not None}
    order = sorted(samples) if changed else samples
    return model.Series(tuple(order), tuple(float(samples[step]) for step in order))


def _typed(known: Quantity, body: Mapping[str, Any]) -> Any:
    return build(known.row, _changed(plain(known.typical()), body, known.row))


def _changed(fields: Mapping[str, Any], body: Mapping[str, Any], cls: Any) -> dict[str, Any]:
    """Return fields with some changed; of a field that is a dataclass, or may be one, only what is named."""
    parts = _parts(cls)
    within = {key for key, value in body.items() if parts.get(key) and isinstance(value, Mapping)}
    return {**fields, **body, **{key: _changed(_mapping(fields.get(key)), body[key], parts[key]) for key in within}}


@functools.cache
def _parts(cls: Any) -> Mapping[str, Any]:
    """Return the dataclass that each field is, or may be."""
    hints = get_type_hints(cls)
    return {key: next(filter(is_dataclass, (hint, *get_args(hint))), None) for key, hint in hints.items()}
