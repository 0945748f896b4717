"""`weighbridge status`: show the status of every gate, computed from the ledger and the evidence that it names."""

import datetime as dt
import shlex
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import click

from weighbridge.cli.completion import recorded_gates
from weighbridge.cli.options import LEDGER, PATH, as_json, print_json, tell, verb
from weighbridge.contract.load import BUILTIN, WAIVERS, contracts_here, load_contract
from weighbridge.core import Excuses, ExitCode, Json, UsageError, exit_code, is_folder, nearest, printable
from weighbridge.evidence.bundle import ID_SHOWN
from weighbridge.evidence.statement import BEFORE, utc
from weighbridge.judging.requests import DEFAULT
from weighbridge.lanes.waivers import Waivers, waivers_of
from weighbridge.ledger import fold, overview
from weighbridge.ledger.causes import Causes
from weighbridge.ledger.overview import Gate, Instance
from weighbridge.ledger.store import DIGEST, Ledger
from weighbridge.report import Row, finding_text, status_word
from weighbridge.report import tally as tally_of
from weighbridge.report.terminal import block

OF_CONTRACT = "Show only the gates of this contract; a file is read as the contract that stands now."
EXEMPT = f"Show what is waived.  [default: {WAIVERS}, where there is one]"
REQUIRED = "Demand that every required gate of this lane is decided by its evidence, and passed or is waived."
FORMS = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%fZ")
OF_GATE = ("contract", "gate", "status", "diverged", "stale", "binds", "waits_for")
OF_INSTANCE = ("status", "unverified", "stale", "reported")


@click.group("status", short_help="Show the status of every gate.", invoke_without_command=True)
@LEDGER
@click.option("--contract", "named", metavar="ID|FILE", help=OF_CONTRACT)
@click.option("--waivers", "exempt", type=PATH, metavar="FILE", help=EXEMPT)
@click.option("--require", "lane", metavar="LANE", help=REQUIRED)
@click.option("--as-of", type=click.DateTime(FORMS), metavar="TIME", help="Show what was recorded by then, in UTC.")
@as_json
def command(
    folder: Path, named: str | None, as_of: dt.datetime | None, *, exempt: Path | None, lane: str | None, as_json: bool
) -> None:
    """Show the status of every gate in the ledger, and how many gates have each status.

    Example: weighbridge status why GATE-RUN-004

    A status is shown only where the evidence for it is beside the ledger and judges again to it; otherwise UNVERIFIED.
    Exit 0 all the same: it shows, and `ledger check` ends with 1.

    With --require it is what the evidence of a lane says of each of its gates. Exit 0: every required gate passed or is
    waived; else as `verify`.
    """
    clock = dt.datetime.now(dt.UTC)
    now = as_of.replace(tzinfo=dt.UTC) if as_of else clock
    waivers = waivers_of(exempt, now, clock=clock)
    if lane is not None:
        from weighbridge.lanes.lanes import refuse_contracts

        refuse_contracts(lane, named)
        sys.exit(_required(lane, folder, waivers, now, as_json=as_json))
    contracts = {name: one.contract for name, one in (contracts_here() if is_folder(folder) else {}).items()}
    if named is not None and (named.startswith(BUILTIN) or Path(named).is_file()):
        given = load_contract(named).contract
        contracts, named = {**contracts, given.id: given}, given.id
    gates = overview.overview(Ledger(folder), contracts, now, as_of=as_of is not None)
    if named is not None and all(gate.contract != named for gate in gates):
        known = {gate.contract for gate in gates}
        raise UsageError("unknown-contract", f"no contract {named!r} is in the ledger{nearest(named, known)}")
    if waivers.given:
        from weighbridge.lanes.lanes import known_contracts

        waivers.demand_known(_known(known_contracts() | contracts, gates))
    context, shown = click.get_current_context(), [gate for gate in gates if named in (None, gate.contract)]
    context.obj = Ledger(folder), now, shown
    if context.invoked_subcommand is None:
        print_json(_json(shown, now, waivers)) if as_json else tell(map(printable, _table(shown, waivers)))


def _table(gates: Sequence[Gate], waivers: Waivers) -> Iterator[str]:
    if not gates:
        yield "no gate is declared yet: `weighbridge verify --record` declares a contract's gates"
        return
    live = fold.ACTIVE, fold.DISCHARGED
    wide = [max(len(printable(getattr(gate, name))) for gate in gates) for name in ("contract", "gate")]
    for gate in gates:
        alone = len(gate.instances) == 1 and gate.instances[0].place.is_of_files
        others = [one for one in gate.instances if one.place.instance != DEFAULT and not alone]
        remarks = (
            ", ".join(f"{one.place.instance}: {status_word(one.status, reported=one.reported)}" for one in others),
            f"({BEFORE})" * any(one.reported and one.status in live for one in gate.instances),
            *sorted({f"({one.unverified})" for one in gate.instances if one.unverified}),
            *(_unmeant(one, alone=alone) for one in gate.instances if one.unmeant),
            "DIVERGED" if gate.diverged else "",
            f"STALE: {', '.join(gate.stale)}" if gate.stale else "",
            f"waits for {', '.join(gate.waits_for)}" if gate.waits_for else "",
            *_waived(gate, waivers),
        )
        row = f"{gate.contract:<{wide[0]}}  {gate.gate:<{wide[1]}}  {_word(gate):<12}"
        yield f"{row}  {' '.join(filter(None, remarks))}".rstrip()
    for name, members in overview.criteria(gates).items():
        each = ", ".join(f"{gate.gate} {_word(gate)}{'' if gate.sound else ', not current'}" for gate in members)
        yield f"criterion {name}: {_word(members[0])} ({each})"
    for (_, root), waiting in overview.blockers(gates).items():
        yield f"{root} holds back {', '.join(waiting)}"
    counted = Counter(map(_word, sorted(gates, key=lambda gate: overview.ORDER.index(gate.status), reverse=True)))
    said = ", ".join(f"{count} {word}" for word, count in counted.items())
    stale, apart = sum(bool(gate.stale) for gate in gates), sum(map(_is_unmeant, gates))
    besides = "".join(f"{word}: {count}; " for word, count in (("STALE", stale), ("NOT_APPLICABLE", apart)) if count)
    done, whole = overview.discharged(gates)
    red = "; UNVERIFIED ends `ledger check` with 1, not `status`" if overview.UNVERIFIED in counted else ""
    yield f"gates: {len(gates)}, of which {said}; {besides}discharged: {done} of {whole}{red}"


def _word(gate: Gate) -> str:
    return status_word(gate.status, reported=gate.reported)


def _unmeant(one: Instance, *, alone: bool) -> str:
    of = "" if alone or one.place.instance == DEFAULT else f" {one.place.instance}"
    return f"NOT_APPLICABLE{of}: {one.unmeant}"


def _is_unmeant(gate: Gate) -> bool:
    """Return whether a gate applies to nothing that was judged last."""
    return bool(gate.instances) and all(one.unmeant for one in gate.instances)


def _waived(gate: Gate, waivers: Waivers) -> Iterator[str]:
    """Yield the waivers of a gate: they move no status, and stand beside it."""
    mine = (gate.contract, gate.gate)
    yield from (f"({said})" for key, said in waivers.good.items() if key[:2] == mine)
    expired = [f"{one.covers} of {one.place} until {one.expires}" for one in waivers.expired if one.key[:2] == mine]
    yield from (f"EXPIRED_WAIVER: {said}" for said in expired)


def _json(gates: Sequence[Gate], now: dt.datetime, waivers: Waivers) -> Json:
    shown: list[Json] = []
    for gate in gates:
        instances: list[Json] = []
        for one in gate.instances:
            at = one.standing
            said: dict[str, Json] = {name: getattr(one, name) for name in OF_INSTANCE}
            said |= {name: getattr(at, name) for name in ("diverged", "bundle", "seq")}
            said |= {"instance": one.place.instance, "recorded": str(at.status), "not_applicable": one.unmeant}
            instances.append(said | {"evidence_at": utc(at.evidence_at) if at.evidence_at else ""})
        beside: dict[str, Json] = {"waivers": list(_waived(gate, waivers)), "instances": instances}
        shown.append({name: getattr(gate, name) for name in OF_GATE} | beside)
    done, whole = overview.discharged(gates)
    met, waiting = overview.criteria(gates).items(), overview.blockers(gates).items()
    return {
        "as_of": utc(now),
        "gates": shown,
        "tally": overview.tally(gates),
        "not_applicable": sum(map(_is_unmeant, gates)),
        "discharged": {"gates": done, "of": whole},
        "criteria": {name: {"status": of[0].status, "gates": [one.gate for one in of]} for name, of in met},
        "blockers": [{"contract": of, "gate": gate, "holds_back": names} for (of, gate), names in waiting],
    }


def _known(contracts: overview.Contracts, gates: Sequence[Gate]) -> dict[str, dict[str, Collection[str] | None]]:
    """Return what a waiver can be of: the instances in the ledger, any of a gate that was never recorded."""
    found: dict[str, dict[str, Collection[str] | None]] = {
        name: dict.fromkeys(gate.id for gate in contract.gates) for name, contract in contracts.items()
    }
    for gate in gates:
        recorded = {DEFAULT if one.place.is_of_files else one.place.instance for one in gate.instances}
        found.setdefault(gate.contract, {})[gate.gate] = recorded or None
    return found


def _required(lane: str, folder: Path, waivers: Waivers, now: dt.datetime, *, as_json: bool) -> ExitCode:
    from weighbridge.lanes.lane_evidence import lane_evidence
    from weighbridge.lanes.lanes import known_contracts, load_project

    evidence, excuses = lane_evidence(load_project(), lane, Ledger(folder), now), Excuses(waived=waivers.good)
    rows = [(asked, one, excuses.of(asked.contract.id, one.finding)) for asked, one in evidence.all()]
    if waivers.given:  # reading every contract again is for their sake alone
        waivers.demand_known(_known(known_contracts(), ()))
    came = {(asked.contract.id, asked.gate.id, asked.instance): one.finding.verdict.outcome for asked, one, _ in rows}
    tell((line for remark in waivers.remarks(came) for line in str(remark).splitlines()), err=True)
    code = exit_code(((asked.contract.id, one.finding) for asked, one, _ in rows), excuses)
    if as_json:
        each: list[Json] = []
        for asked, one, why in rows:
            verdict, severity = one.finding.verdict, asked.gate.severity
            place = {"contract": asked.contract.id, "gate": asked.gate.id, "instance": asked.instance, "lane": asked.by}
            came_to = {"severity": severity, "outcome": verdict.outcome, "code": verdict.code}
            each.append({**place, **came_to, "says": one.says, "of": one.of, "excused": why})
        print_json({"lane": lane, "as_of": utc(now), "gates": each, "exit_code": int(code)})
        return code
    for asked, one, why in rows:
        said, elsewhere = finding_text(one.finding, one.lacking), "" if one.lacking else f"{one.says}; of {one.of}"
        row = Row(finding=one.finding, title=asked.gate.title, said=said, excused=why, elsewhere=elsewhere)
        first, *rest = block(row)
        tell((f"{first}  [{asked.contract.id}]", *rest))
    findings, excused = [one.finding for _, one, _ in rows], sum(bool(why) for *_, why in rows)
    tell([f"lane {lane}: {tally_of(findings, code, excused)}"])
    return code


@verb("why", "Show how a gate came to its status.", "GATE-RUN-004", of=command)
@click.argument("gate", shell_complete=recorded_gates)
@click.pass_obj
def why(found: tuple[Ledger, dt.datetime, Sequence[Gate]], gate: str) -> None:
    """Show every status change of GATE, oldest first, with its evidence, and what the gate needs next."""
    ledger, now, gates = found
    if not (mine := [one for one in gates if one.gate == gate and one.instances]):
        what = f"no gate {gate!r} is in the ledger{nearest(gate, {one.gate for one in gates if one.instances})}"
        raise UsageError("unknown-gate", what, where=str(ledger.root))
    causes = Causes(ledger=ledger, chains=ledger.chains())
    for each in mine:
        for one in each.instances:
            refuted, came = dict(causes.refuted(one.entries, sorted(one.entries), now)), dict[str, str]()
            tell([click.style(str(one.place), bold=True)])
            for digest, entry in sorted(one.entries.items(), key=lambda item: item[1].seq):
                before = next((came[parent] for parent in entry.parents if parent in came), status_word(entry.before))
                came[digest], *lines = _entry(entry, str(refuted.get(digest, "")), causes, before)
                tell(f"  {printable(line)}" for line in lines)
            said = [f"now: {status_word(one.status, reported=one.reported)}"]
            said += [_unmeant(one, alone=one.place.is_of_files)] if one.unmeant else []
            said += (f"STALE: {reason}" for reason in one.stale)
            said += [f"waits for: {', '.join(each.waits_for)}"] if each.waits_for else []
            tell(f"  {printable(line)}" for line in (*said, f"next: {_next(one, alone=len(each.instances) == 1)}"))


def _entry(entry: fold.LedgerEntry, refuted: str, causes: Causes, before: str) -> Iterator[str]:
    """Yield what an entry led to, and then the lines that say so."""
    of = f"  {entry.outcome} of {entry.evidence_at}" if entry.outcome else ""
    kinds = {fold.LedgerStep.DECLARE: "contract ", fold.LedgerStep.DISCHARGE: "amendment "}
    kinds |= dict.fromkeys((fold.LedgerStep.MOVE, fold.LedgerStep.RENEW), "bundle ")
    cause = entry.cause[:ID_SHOWN] if DIGEST.fullmatch(entry.cause) else entry.cause
    again = "; judged again: the same" if entry.outcome and not refuted else ""
    stated = causes.stated.get(entry.cause)
    mine = [one for one in (stated.subjects if stated else ()) if one.instance in (entry.place.instance, DEFAULT)]
    after = status_word(entry.after, reported=any(one.unwitnessed for one in mine))
    yield after
    yield f"{entry.seq:>3}  {before} -> {after}  ({entry.step}){of}"
    yield f"     by {kinds.get(entry.step, '')}{cause}, recorded {entry.recorded_at}{again}"
    for one in mine:  # the files that a verdict is of
        of = f"     {one.name}={one.path}{f' ({one.said})' if one.unwitnessed else ''}"
        yield from (f"{of}: {file} sha256 {digest}" for file, digest in one.digests.items())
    if entry.reason:
        yield f"     reason: {entry.reason}"
    if refuted:
        yield from (f"     {line}" for line in f"UNVERIFIED: {refuted}".splitlines())


def _next(one: Instance, *, alone: bool) -> str:
    place, at = one.place, one.standing
    name = shlex.quote(place.names[1 if alone or place.instance == DEFAULT else 2])
    if one.unverified:
        return f"{one.unverified}; restore the evidence from the history of the repository, then `ledger check`"
    if at.diverged:
        return f"join its {len(at.heads)} newest entries: weighbridge ledger reconcile {name} --reason …"
    if one.stale:
        return "measure again under the contract as it is: weighbridge verify … --record"
    needs = {
        fold.DRAFT: "a PASS with all trials caught: on any subject for fixture only, on live subjects for live",
        fold.PARTIAL: "a PASS on live subjects, by a clean tool: bind them with --subject and --record",
        fold.ACTIVE: "a landed amendment that cites a live PASS: weighbridge amend",
        fold.DISCHARGED: "nothing; a FAIL on live or reported subjects regresses it",
        fold.RETIRED: "nothing moves it from here; declare a new gate",
    }
    if one.reported and at.status in (fold.PARTIAL, fold.ACTIVE):
        return f"a PASS on a run or trace that a witness saw: {fold.WATCH}, then verify it with --record"
    if at.status is fold.REGRESSED:
        return f"a live PASS measured later than {utc(at.failed_at) if at.failed_at else 'the FAIL'}"
    return needs[at.status or fold.DRAFT]
