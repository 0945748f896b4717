"""facts of a checkpoint: what its headers say, counted; costs no look at the payload. Knows no threshold."""

import collections
import contextlib
from collections.abc import Mapping

from weighbridge.core import Basis, Fields, Json, Measurement, SubjectError, SubjectKind, Unmeasured, data, replace
from weighbridge.quantities.facts import fact_of
from weighbridge.verifiers.tensor_walk import extent
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name, table
from weighbridge.views.checkpoint import CheckpointView, config_beside

QUANTITY = "facts"
REPORTED: Mapping[str, str] = data.table("verifiers/claimed_facts")


def measure(views: Views, _options: Fields) -> Measurement:
    """Count tensors, elements, bytes, dtypes and files, and pass on what the metadata claims."""
    view: CheckpointView = views[0]
    tensors, metadata = view.tensors.values(), view.metadata
    dtypes = collections.Counter(tensor.dtype for tensor in tensors)
    counted: dict[str, Json] = {
        "format": view.format,
        "files": len({part.file for tensor in tensors for part in tensor.stored}),
        "tensors": len(tensors),
        "elements": sum(tensor.elements for tensor in tensors),
        "bytes": sum(tensor.nbytes for tensor in tensors),
        "dtypes": dict(sorted(dtypes.items())),
        "metadata_keys": len(metadata),
    }
    claimed = {name: metadata[key] for key, name in REPORTED.items() if metadata.get(key) is not None}
    with contextlib.suppress(SubjectError):  # what compares configurations reports it
        kind = "architecture" not in claimed and (config_beside(view) or {}).get("model_type")
        claimed |= {"architecture": kind} if kind else {}
    facts = [fact_of(name, value, Basis.MEASURED) for name, value in counted.items()]
    facts += [fact_of(name, value, Basis.REPORTED) for name, value in claimed.items()]
    found = table(QUANTITY, facts, by="checkpoint_facts")
    return replace(found, basis={}, examined=len(tensors), total=len(tensors))


def canary(views: Views, _options: Fields, _measurement: Measurement) -> Canary | NoCanary:
    """Cut the last tensor away."""
    view: CheckpointView = views[0]
    names = view.names()
    if not names:
        return NoCanary("there is no tensor to take away")
    kept = [view.tensor(name) for name in names[:-1]]
    left: dict[str, Json] = {
        "files": len({part.file for tensor in kept for part in tensor.stored}),
        "tensors": len(kept),
        "elements": sum(tensor.elements for tensor in kept),
        "bytes": sum(tensor.nbytes for tensor in kept),
        "dtypes": {dtype: sum(tensor.dtype == dtype for tensor in kept) for dtype in {tensor.dtype for tensor in kept}},
    }

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        return all(after.get(name) == fact_of(name, value, Basis.MEASURED) for name, value in left.items())

    return Canary(name="the last tensor taken away", place=names[-1], views=(view.cut(names[:-1]),), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.CHECKPOINT,), measure=measure, extent=extent, canary=canary)
