"""Judge a bundle again from its own bytes: no torch, no views, any machine, any locale, any time zone."""

from __future__ import annotations

from weighbridge.contract.resolved import check_limits
from weighbridge.evidence.codec import findings_to_bytes
from weighbridge.evidence.unseal import Bundle
from weighbridge.gates import KINDS
from weighbridge.judging import judge_contract


def rejudge(bundle: Bundle) -> bytes:
    """Return what `verdicts.json` would hold had the bundle been judged here and now.

    Raises:
        BundleError: `structure`, where the contract cannot be judged by this version.
    """
    check_limits(bundle.contract)
    findings = judge_contract(bundle.contract, bundle.statement.instances, bundle.measured, bundle.canaries)
    return findings_to_bytes(findings)


def other_versions(bundle: Bundle) -> tuple[str, ...]:
    """Return the kinds that judged this bundle in a version that is not here, as `kind/version`."""
    used = {(finding.kind, finding.kind_version) for finding in bundle.findings}
    known = {(kind.name, kind.version) for kind in KINDS.values()}
    return tuple(f"{name}/{version}" for name, version in sorted(used - known))
