"""What `weighbridge trace repro` writes: the step of one point of a bundle as a script, with its values beside it."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weighbridge.core import Fields, SubjectError, Unmeasured, UsageError, data_path, nearest, printable, torch
from weighbridge.core.model import Finding, Measurement
from weighbridge.core.project import root
from weighbridge.evidence.bundle import Bundle
from weighbridge.judging.requests import keys_of
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.forward import ForwardError

if TYPE_CHECKING:
    from weighbridge.forward.stacks import Torch
    from weighbridge.forward.step_script import Step
    from weighbridge.forward.trace_file import Trace

AGAIN = 2  # times the error that was sealed, or a part of it: what another run of the same may come to
KIND = "forward-parity"
OVER = {"all": (0, 1, 2), "token": 2, "channel": (0, 1)}  # the dimensions that a figure is over
NARROW = 'print(f"the reference in {dtype}: {{off(step(torch.{dtype}, torch.float32)):.3g}}")\n'


def finding_of(bundle: Bundle, gate: str, point: str) -> tuple[Finding, str]:
    """Return the finding that is meant, the first that did not pass, and its point, the first that it names."""
    if not (found := [one for one in bundle.findings if one.kind == KIND and gate in ("", one.gate)]):
        what = f"the bundle judged no gate of the kind {KIND}" + f" called {gate!r}" * bool(gate)
        raise UsageError("unknown-gate", what, where=str(bundle.path), remedy="`evidence show` lists its gates")
    one = next((one for one in found if one.verdict.offences), found[0])
    figures, places = one.verdict.figures, [offence.place for offence in one.verdict.offences]
    first = str(figures["first"]) if figures.get("first") in places else ""
    return one, point or first or (places[0] if places else str(figures.get("worst", "")))


def row_of(bundle: Bundle, finding: Finding, point: str) -> ForwardError:
    """Return what the bundle holds of a point."""
    (key,) = keys_of(bundle.contract, finding)
    measured = bundle.measured.get(key)
    known = {row.point: row for row in rows_of(measured, ForwardError)} if isinstance(measured, Measurement) else {}
    if point not in known:
        remedy = "`weighbridge evidence show BUNDLE` names those that it judged"
        raise UsageError("unknown-point", f"the bundle holds no point {point!r}", where=finding.gate, remedy=remedy)
    return known[point]


def write(bundle: Bundle, finding: Finding, row: ForwardError, subjects: Mapping[str, str], out: Path) -> list[str]:
    """Run both subjects again, write the script and its values, and return what to tell."""
    from safetensors.torch import save_file

    from weighbridge.forward.stacks import captured
    from weighbridge.forward.step_script import step_of

    stack, trace = _run_again(bundle, finding, subjects)
    step = step_of(stack, trace.facts.tokens, trace, row.point, row.made_from)
    if trace.shape(row.point) != tuple(step.truth.shape):
        what = f"the candidate holds {row.point} in another shape, or not at all"
        raise SubjectError("trace-step", what, remedy="name a point that both sides hold alike")
    figures: Fields = next((one.figures for one in finding.verdict.offences if one.place == row.point), {})
    values = captured(trace, row.point, step.truth)
    _check_same(row, trace, step.truth, values, wrong=bool(figures))
    kept = {**step.given, "candidate": values, "reference": step.truth}
    save_file({name: one.contiguous() for name, one in kept.items()}, out.with_suffix(".safetensors"))
    words = {"gate": finding.gate, "bundle": bundle.id[:12], "name": out.stem}
    script = (data_path("templates") / "repro.txt").read_text("utf-8").removesuffix("\n")
    out.write_text(script.format(**words, **_of_point(row, figures, step, trace.facts.dtype)), encoding="utf-8")
    written = f"{out}: {len(step.lines)} lines of {row.point}, and {out.with_suffix('.safetensors').name}"
    return [printable(written), printable(f"$ python {out}")]


def _here(path: str) -> str:
    """Return where a subject lies, by its path below this folder or the project's root: none is absolute."""
    here, top = path.replace("${RUN}", str(Path.cwd())), root(Path())
    file = here.partition(":")[0]
    return here if Path(file).exists() or not (top / file).exists() else str(top / here)


def _run_again(bundle: Bundle, finding: Finding, subjects: Mapping[str, str]) -> "tuple[Torch, Trace]":
    """Return the reference and the candidate's trace; refuse files that are not those which were measured."""
    from weighbridge.verifiers.forward_errors import both_runs
    from weighbridge.views.model_view import open_model

    gate = bundle.contract.gate(finding.gate)
    sealed = {one.name: one for one in bundle.statement.subjects if one.instance == finding.instance}
    bound = {role: sealed[gate.subjects[role]] for role in ("reference", "candidate")}
    if odd := sorted(set(subjects) - {one.name for one in bound.values()}):
        raise UsageError("unknown-subject", f"{finding.gate} has no subject {odd[0]!r}{nearest(odd[0], sealed)}")
    targets = {one.name: subjects.get(one.name) or _here(one.path) for one in bound.values()}
    for one in bound.values():
        if "${" in targets[one.name]:
            what = f"the bundle does not say where {one.name} lay, which was outside the project"
            raise UsageError("unbound", what, remedy=f"bind it again: --subject {one.name}=…")
    views = {role: open_model(targets[one.name]) for role, one in bound.items()}
    found = both_runs((views["reference"], views["candidate"]), gate.measure)
    if isinstance(found, Unmeasured):
        raise SubjectError(found.code, found.why, remedy=found.remedy)
    for role, one in bound.items():
        if dict(views[role].digest()) != dict(one.digests):
            what = f"{one.name} is not what was measured: other files, by their sha256"
            raise SubjectError("other-subject", what, where=views[role].spec, remedy=f"bind it: --subject {one.name}=…")
    return found.stack, found.found


def _check_same(row: ForwardError, trace: "Trace", truth: Any, values: Any, *, wrong: bool) -> None:
    """Refuse inputs that are not those of the bundle, and an error that is not that which the bundle tells."""
    from weighbridge.forward.local_pass import compare
    from weighbridge.forward.trace_file import inputs_digest

    now, before = compare(truth, values).all or 0.0, row.candidate.all or 0.0
    other = wrong and not before / AGAIN <= now <= before * AGAIN
    if other or inputs_digest(trace.facts.tokens) != row.run.inputs_digest:
        what = f"{row.point} is {now:.3g} off now, {before:.3g} in the bundle: other inputs, or another model"
        raise SubjectError("other-subject", what, remedy="bind what was measured: --subject NAME=TARGET")


def _of_point(row: ForwardError, figures: Fields, step: "Step", dtype: str) -> dict[str, object]:
    """Return what a script says of its point: what was measured, the limit where it is broken, and the step."""
    over, limit = str(figures.get("over") or "all"), figures.get("limit")
    error = getattr(row.candidate, over)
    try:
        step.made(getattr(torch, dtype), torch.float32)
        narrow = NARROW.format(dtype=dtype)
    except RuntimeError:  # operations that another kernel of the reference would take in this dtype
        narrow = ""
    return {
        "place": row.point,
        "found": f"local error {error:.3g}" if error is not None else "no error was measured",
        "lines": "\n    ".join(step.lines),
        "over": OVER[over],
        "limit": f"{limit:.3g}" if isinstance(limit, float) else "none: it passed",
        "narrow": narrow,
    }
