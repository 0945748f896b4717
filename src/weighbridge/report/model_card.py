"""What a bundle came to, as a Hugging Face model card: `model-index` metadata and the section of a README under it."""

from __future__ import annotations

from weighbridge.core import Json, Severity, printable
from weighbridge.evidence.bundle import ID_SHOWN, folder_name
from weighbridge.report import finding_text
from weighbridge.report.attestations import Export
from weighbridge.report.markdown import escaped

SECTION = """\
---
{metadata}---

## Evidence

**{passed} of {all} gates passed**, {those} of the {required} required ones, under the contract {contract}.
BLOCKED could not look, DRAFT was not judged, NOT_APPLICABLE is for other models: none of them is a pass.

| gate | promise | kind | severity | outcome | found |
|---|---|---|---|---|---|
{gates}

Measured {finished} by {tool} on:

{subjects}
{overridden}
The evidence is the bundle {folder}, id `{id}`. Ask it again:

```console
$ weighbridge evidence verify BUNDLE --id {short} --require-pass --subject NAME=FILE
```

It shows that nothing was changed after sealing and that the outcomes follow from what was measured. It does not prove
that the measuring was honest.
"""


def model_card(export: Export) -> str:
    """Return the card: its metadata between `---`, and the section of the README."""
    import yaml

    bundle, stated = export.bundle, export.bundle.statement
    gates = []
    for result in export.results:
        found = finding_text(result.finding, bundle.measured).lines[0] if result.finding else "not judged"
        gate = result.gate
        cells = (result.name, gate.title, gate.kind, gate.severity, result.outcome, found)
        gates.append(f"| {' | '.join(map(escaped, cells))} |")
    files = []
    for one in export.subjects:
        named = ((f"{one.name}@{one.instance} {file}", digest) for file, digest in sorted(one.digests.items()))
        files += [f"- {escaped(name)} ({one.said}), sha256 {escaped(digest)}" for name, digest in named]
    required = [one for one in export.results if one.gate.severity is Severity.REQUIRED]
    changed = "\nParameters were overridden, so this is not the contract as written: {}.\n"
    return SECTION.format(
        metadata=yaml.safe_dump(_metadata(export), sort_keys=False, allow_unicode=True, width=1 << 16),
        passed=len(export.passed),
        all=len(export.results),
        those=sum(one in export.passed for one in required),
        required=len(required),
        contract=escaped(f"{stated.contract.id} {stated.contract.version}"),
        gates="\n".join(gates),
        finished=stated.finished,
        tool=escaped(f"{stated.tool.name} {stated.tool.version}") + (" (changed)" if stated.tool.dirty else ""),
        subjects="\n".join(files),
        overridden=changed.format(escaped(", ".join(bundle.contract.overrides or stated.overridden)))
        if stated.overridden
        else "",
        folder=escaped(folder_name(stated, bundle.id)),
        id=bundle.id,
        short=bundle.id[:ID_SHOWN],
    )


def _metadata(export: Export) -> Json:
    """Return what the Hub reads: each gate as a metric, and the contract, by its digest, as what it was measured on."""
    contract = export.bundle.statement.contract
    metrics = [{"type": one.gate.kind, "value": one.outcome, "name": printable(one.name)} for one in export.results]
    changed = "".join(f", {one}" for one in export.bundle.contract.overrides)
    dataset: dict[str, Json] = {"name": printable(f"contract {contract.id} {contract.version}{changed}")}
    dataset |= {"type": printable(contract.id), "revision": contract.whole}
    dataset["args"] = {"bundle": export.bundle.id, "finished": export.bundle.statement.finished}
    results: Json = {"task": {"type": "other", "name": "Verification"}, "dataset": dataset, "metrics": metrics}
    name = export.subjects[0].name if len(export.subjects) == 1 else contract.id
    return {"model-index": [{"name": printable(name), "results": [results]}]}
