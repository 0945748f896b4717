"""One `verify`: load contracts, bind subjects, measure, judge, seal the evidence, and show or record what moves."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weighbridge.binding import ARGUMENT, Bound, bind, instances
from weighbridge.contract.load import LoadedContract, load_contract
from weighbridge.contract.resolved import digests
from weighbridge.errors import ContractError, UsageError
from weighbridge.evidence.redact import Redactor, project_key, redactor_here
from weighbridge.evidence.unseal import Bundle
from weighbridge.ledger.record import Move, propose, record
from weighbridge.ledger.store import Ledger
from weighbridge.limits import nearest
from weighbridge.runner import Evaluation, evaluate
from weighbridge.sealing import command_line, keep

BUNDLES = "bundles"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the person at the keyboard asked for."""

    contracts: tuple[str, ...]
    subjects: tuple[str, ...] = ()
    params: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gates: tuple[str, ...] = ()
    expect_blocked: frozenset[str] = frozenset()
    evidence: Path
    ledger: Path
    record: bool = False
    debug: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one contract came to, and where its evidence is."""

    loaded: LoadedContract
    evaluation: Evaluation
    bundle: Bundle
    moves: tuple[Move, ...]


def verify(asked: Asked, progress: Callable[[str], None]) -> tuple[Result, ...]:
    """Verify every contract that was asked for; nothing is measured before all of them are read and bound.

    Raises:
        ContractError, UsageError: where something asked for cannot be.
        BundleError: where evidence cannot be sealed.
    """
    loaded = load_all(asked.contracts, asked.params)
    bound = bind_all(loaded, asked.subjects)
    _check_gates(loaded, asked)
    targets = (item.target for items in bound for item in items)
    named = (*command_line(), *targets, *(str(one.path) for one in loaded))
    redactor = redactor_here(project_key(Path()), run=Path.cwd(), named=named)
    return tuple(
        _one(contract, subjects, asked, redactor, progress) for contract, subjects in zip(loaded, bound, strict=True)
    )


def _one(
    loaded: LoadedContract, bound: tuple[Bound, ...], asked: Asked, redactor: Redactor, progress: Callable[[str], None]
) -> Result:
    on = {gate.id: instances(gate, bound) if _wanted(gate.id, asked.gates) else () for gate in loaded.contract.gates}
    evaluation = evaluate(loaded.contract, bound, on, redactor=redactor, progress=progress, debug=asked.debug)
    progress("sealing")
    bundle = keep(evaluation, loaded.source, asked.evidence / BUNDLES, redactor, command_line())
    move = record if asked.record else propose
    moves = move(bundle, Ledger(asked.ledger), now=evaluation.finished, contract_digest=digests(loaded.contract).whole)
    return Result(loaded=loaded, evaluation=evaluation, bundle=bundle, moves=moves)


def load_all(names: Sequence[str], params: Mapping[str, str]) -> tuple[LoadedContract, ...]:
    """Return every contract, loaded, or raise the problems of all of them together.

    Raises:
        ContractError: with every problem of every contract.
    """
    loaded: list[LoadedContract] = []
    problems: list[ContractError] = []
    for name in names:
        try:
            loaded.append(load_contract(name, params))
        except ContractError as error:
            problems += error.problems
    if problems:
        first = problems[0]
        raise ContractError(first.code, first.what, where=first.where, remedy=first.remedy, problems=tuple(problems))
    return tuple(loaded)


def bind_all(loaded: Sequence[LoadedContract], arguments: Sequence[str]) -> tuple[tuple[Bound, ...], ...]:
    """Bind each argument in every contract that declares its subject.

    Raises:
        UsageError: for an argument that no contract knows, or that is of no form.
    """
    known = {name for contract in loaded for name in contract.contract.subjects}
    for argument in arguments:
        match = ARGUMENT.fullmatch(argument)
        if match is not None and match["name"] not in known:
            what = f"no contract has a subject {match['name']!r}{nearest(match['name'], known)}"
            raise UsageError("unknown-subject", what)
    names = {text: match["name"] if (match := ARGUMENT.fullmatch(text)) else None for text in arguments}
    return tuple(
        bind(
            one.contract, one.path.parent, [text for text in arguments if names[text] in {None, *one.contract.subjects}]
        )
        for one in loaded
    )


def _check_gates(loaded: Sequence[LoadedContract], asked: Asked) -> None:
    """Refuse a glob that chooses no gate, and an expected block, by its very id, of a gate that is not judged."""
    known = [gate.id for contract in loaded for gate in contract.contract.gates]
    unmatched = (glob for glob in asked.gates if not any(_wanted(gate, (glob,)) for gate in known))
    judged = {gate for gate in known if _wanted(gate, asked.gates)}
    for name in (*unmatched, *sorted(asked.expect_blocked - judged)):
        among = " that is judged" if name in known else ""
        raise UsageError("unknown-gate", f"no gate{among} is called {name!r}{nearest(name, known)}")


def _wanted(gate: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(gate, glob) for glob in globs)
