"""Seal evidence into a folder that cannot be changed unnoticed: all of it or nothing, and nothing secret in it.

Sealing judges nothing and measures nothing. What it is given has been redacted and decoded before it was judged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from weighbridge.canonical import dumps, sha256
from weighbridge.contract.resolved import ContractDigests, contract_to_json
from weighbridge.errors import BundleError
from weighbridge.evidence import layout, manifest, statement
from weighbridge.evidence.codec import canaries_to_bytes, findings_to_bytes
from weighbridge.evidence.disk import disk_error, write_folder
from weighbridge.evidence.redact import Redactor, scan
from weighbridge.evidence.statement import BoundSubject, ContractRef, Predicate, Tool
from weighbridge.evidence.timestamps import utc
from weighbridge.evidence.unseal import Bundle, unseal
from weighbridge.model import CanaryResult, Contract, Fields, Finding, Measured

ID_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Everything that one bundle is to hold. Times are UTC; `command` is the redacted argv, without secrets or paths.

    `measured` is what was judged: redacted and decoded again (`redact.redact_measured`).
    """

    contract: Contract
    contract_yaml: bytes
    contract_digests: ContractDigests
    subjects: tuple[BoundSubject, ...]
    instances: Mapping[str, tuple[str, ...]]
    measured: Mapping[str, Measured]
    canaries: Mapping[str, CanaryResult]
    findings: tuple[Finding, ...]
    tool: Tool
    host: str
    started: datetime
    finished: datetime
    command: tuple[str, ...] = ()
    environment: Fields = field(default_factory=dict)
    logs: Mapping[str, str] = field(default_factory=dict)


def seal(draft: Draft, into: Path, redactor: Redactor) -> Bundle:
    """Write `DATE-CONTRACT-ID12/` into the folder `into`, and read it back.

    Raises:
        BundleError: `secret-found` where a file still holds what redaction should have taken out; `too-large`;
            `disk` where the disk refuses. In each case nothing is left behind.
    """
    files = _files(draft, redactor)
    listed = manifest.to_bytes(files)
    stated = statement.to_bytes(_predicate(draft, sha256(listed)))
    whole = {**files, manifest.FILE: listed, statement.FILE: stated}
    # Arrays hold nothing but numbers: reading the bundle back demands it.
    hits = [hit for key, data in whole.items() if not key.endswith(".npy") and (hit := scan(key, data, redactor))]
    if hits:
        shown = "; ".join(f"{hit.path} ({hit.rule})" for hit in hits)
        what = f"{len(hits)} of {len(whole)} files would seal a secret, a name or an absolute path: {shown}"
        remedy = "take it out of the contract or the subject; nothing was sealed, and the value is not repeated here"
        raise BundleError("secret-found", what, where=hits[0].path, remedy=remedy)
    name = folder_name(draft.contract.id, draft.finished, sha256(stated))
    target = into / name
    if not target.exists():
        try:
            target = write_folder(into, name, whole)
        except OSError as problem:
            raise disk_error(problem, "the bundle", into) from None
    return unseal(target)


def folder_name(contract: str, finished: datetime, bundle_id: str) -> str:
    """Return the name of a bundle's folder: the day, the contract, the first digits of its id."""
    return f"{finished.astimezone(UTC):%Y-%m-%d}-{contract}-{bundle_id[:ID_SHOWN]}"


def _files(draft: Draft, redactor: Redactor) -> dict[str, bytes]:
    logs = {layout.log_file(name): layout.log_tail(redactor.log(text)) for name, text in draft.logs.items()}
    return {
        layout.CONTRACT_YAML: draft.contract_yaml,
        layout.CONTRACT_JSON: dumps(contract_to_json(draft.contract)),
        layout.VERDICTS: findings_to_bytes(draft.findings),
        layout.CANARIES: canaries_to_bytes(draft.canaries),
        layout.ENVIRONMENT: layout.environment_file(draft.environment),
        **layout.measurement_files(draft.measured),
        **logs,
    }


def _predicate(draft: Draft, manifest_digest: str) -> Predicate:
    contract, parts = draft.contract, dataclasses.asdict(draft.contract_digests)
    return Predicate(
        contract=ContractRef(id=contract.id, version=contract.version, **parts),
        manifest=manifest_digest,
        tool=draft.tool,
        host=draft.host,
        subjects=draft.subjects,
        instances=draft.instances,
        started=utc(draft.started),
        finished=utc(draft.finished),
        overridden=contract.overridden,
        command=draft.command,
    )
