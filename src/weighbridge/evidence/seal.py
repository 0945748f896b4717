"""Seal evidence into a folder that cannot be changed unnoticed: all of it or nothing, and nothing secret in it.

Sealing judges nothing and measures nothing. What it is given has been redacted and decoded before it was judged.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from weighbridge.canonical import dumps, sha256
from weighbridge.contract.resolved import ContractDigests, contract_to_json
from weighbridge.errors import BundleError
from weighbridge.evidence import manifest, statement
from weighbridge.evidence.codec import canaries_to_bytes, encode_measured, findings_to_bytes
from weighbridge.evidence.disk import disk_error, write_folder
from weighbridge.evidence.redact import Redactor, scan
from weighbridge.evidence.statement import BoundSubject, ContractRef, Predicate, Tool, utc
from weighbridge.evidence.unseal import Bundle, unseal
from weighbridge.model import CanaryResult, Contract, Fields, Finding, Measured

ID_SHOWN = 12
LOG_TAIL = 256 << 10
# What may be told about the machine; nothing else is sealed, whatever is handed in.
TELLABLE = frozenset((
    "python", "implementation", "system", "machine", "weighbridge", "torch", "numpy", "safetensors", "gguf",
    "ml_dtypes", "cuda", "cudnn", "driver", "device_name", "device_capability", "visible_devices", "cpu_count",
    "deterministic", "matmul_precision", "default_dtype", "num_threads", "omp_num_threads", "mkl_num_threads",
    "locale", "timezone",
))  # fmt: skip


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
    name = f"{draft.finished.astimezone(UTC):%Y-%m-%d}-{draft.contract.id}-{sha256(stated)[:ID_SHOWN]}"
    target = into / name
    if not target.exists():
        try:
            target = write_folder(into, name, whole)
        except OSError as problem:
            raise disk_error(problem, "the bundle", into) from None
    return unseal(target)


def _files(draft: Draft, redactor: Redactor) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    arrays: dict[str, bytes] = {}  # each stored once, whoever names it
    for key, item in draft.measured.items():
        body, held = encode_measured(item)
        files[manifest.measurement_file(key)] = dumps({"key": key, "measured": body})
        arrays |= held
    return {
        manifest.CONTRACT_YAML: draft.contract_yaml,
        manifest.CONTRACT_JSON: dumps(contract_to_json(draft.contract)),
        manifest.VERDICTS: findings_to_bytes(draft.findings),
        manifest.CANARIES: canaries_to_bytes(draft.canaries),
        manifest.ENVIRONMENT: dumps({key: told for key, told in draft.environment.items() if key in TELLABLE}),
        **files,
        **{f"{manifest.MEASUREMENTS}{digest}.npy": data for digest, data in arrays.items()},
        **{f"{manifest.LOGS}{_slug(name)}.txt": _tail(redactor.log(text)) for name, text in draft.logs.items()},
    }


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-") or "_"


def _tail(text: str) -> bytes:
    """Keep the end of a log, whole lines of it, and say how much was cut."""
    data = text.encode("utf-8", errors="replace")
    if len(data) <= LOG_TAIL:
        return data
    tail = data[-LOG_TAIL:].split(b"\n", 1)[-1]
    return f"[{len(data) - len(tail)} bytes before this were cut]\n".encode() + tail


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
