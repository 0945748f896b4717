"""A candidate's own weights by the reference's names: of its stack, or of its checkpoint by the maps of `compare`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.casts import decode
from weighbridge.core import Fields, NDArray, SubjectError, np, replace
from weighbridge.forward.products import by_stored_type, said_of
from weighbridge.forward.stacks import Stack, Torch, digests_of
from weighbridge.mapping.chosen_mapping import planned
from weighbridge.packing.unpacked_view import both_unpacked
from weighbridge.quantities.forward import Taken
from weighbridge.views.checkpoint import open_checkpoint
from weighbridge.views.model_view import ModelView

GGML = "ggml"
SMALL_ROW = 0.1  # of the mean norm: a row of less is measured against so much


def as_candidate(
    reference: ModelView, candidate: ModelView, dtype: str, options: Fields
) -> tuple[ModelView, Mapping[str, str], tuple[Taken, ...]]:
    """Return the reference with what the candidate's products take, and its matrices, where it is asked for them.

    Its own weights are digested before, so that what was taken still counts as differing; empty where none was.
    """
    reference = replace(reference, products=products_of(reference, candidate))
    if options.get("weights") != "candidate":
        return reference, {}, ()
    key = id(candidate.runs), dtype  # of one run of the candidate, which all views of it share
    if key not in reference.runs.taken:
        own = reference.prepared(dtype)
        known, theirs = dict(own.own_weights()), dict(own_weights(reference, candidate))
        if candidate.weights_file() is not None:  # what was mapped and dequantised is digested at once
            candidate.runs.own[id(reference.runs), dtype] = digests_of(theirs.items(), dtype)
        fits = {name: theirs[name] for name, one in known.items() if one.ndim > 1 and name in theirs}
        fits = {name: one for name, one in fits.items() if known[name].shape == one.shape}
        taken = tuple(_taken(name, known[name], array) for name, array in fits.items())
        reference.runs.taken[key] = reference.taking(fits, dtype).weights, own.digests(dtype), taken, candidate.runs
    name, digests, taken, _ = reference.runs.taken[key]
    return replace(reference, weights=name), digests, taken


def _taken(name: str, own: "NDArray[Any]", theirs: "NDArray[Any]") -> Taken:
    """Return how far a matrix lies from ours, over all of it and over its worst row."""
    ours, off = (one.reshape(-1, one.shape[-1]) for one in (own, theirs - own))
    norms, errors = (np.linalg.norm(one.astype(np.float64), axis=1) for one in (ours, off))
    rows = errors / np.maximum(norms, norms.mean() * SMALL_ROW or 1.0)
    return Taken(name=name, all=float(np.linalg.norm(errors) / (np.linalg.norm(norms) or 1.0)), row=float(rows.max()))


def own_digests(reference: ModelView, candidate: ModelView, dtype: str) -> Mapping[str, str]:
    """Return the digests of the weights in a candidate's file, which are mapped and dequantised once."""
    known, key = candidate.runs.own, (id(reference.runs), dtype)
    if key not in known:
        known[key] = digests_of(own_weights(reference, candidate), dtype)
    return known[key]


def own_weights(reference: ModelView, candidate: ModelView) -> "Iterator[tuple[str, NDArray[Any]]]":
    """Yield the candidate's weights in float32 by the reference's names; none where it says none."""
    stack = candidate.stack()
    if isinstance(stack, Torch):
        yield from stack.own_weights()
    elif isinstance(stack, Stack) and stack.weights:
        yield from stack.weights.items()
    elif (path := candidate.weights_file()) is not None:
        yield from _mapped(path, _checkpoint(reference))


def _mapped(path: Path, reference: Path) -> "Iterator[tuple[str, NDArray[Any]]]":
    source, target = both_unpacked((open_checkpoint(path), open_checkpoint(reference)))
    for name, pairing in planned(source, target, {}).pairings.items():
        aligned = AlignedTensor(source, target, pairing)
        if aligned.dtype:
            parts = [decode(words, aligned.dtype).astype(np.float32) for words in aligned.predicted()]
            yield name, np.concatenate(parts).reshape(target.tensor(name).shape)


def _checkpoint(reference: ModelView) -> Path:
    """Return the reference's files; refuse with `weights-file` where it names none."""
    folder, stack = getattr(reference.source, "path", None), reference.stack()
    named = folder or getattr(stack, "checkpoint", "")
    if not named:
        what = "the candidate names its weights by a file, and the reference has none to map them to"
        raise SubjectError("weights-file", what, where=reference.spec, remedy="bind hf:DIR, or give `checkpoint`")
    return Path(named)


def products_of(reference: ModelView, candidate: ModelView) -> Mapping[str, str]:
    """Return what the candidate says its products take, `ggml` as the types of its checkpoint say it."""
    said = candidate.said_products()
    if GGML not in said.values():
        return said
    path = candidate.weights_file()
    if path is None:
        remedy = "name the file by `checkpoint`, or write what products take"
        raise SubjectError("products", "`ggml` says nothing without a checkpoint", where=candidate.spec, remedy=remedy)
    stored = open_checkpoint(path)
    source, target = both_unpacked((stored, open_checkpoint(_checkpoint(reference))))
    found = {glob: one for glob, one in said.items() if one != GGML}
    for name, pairing in planned(source, target, {}).pairings.items():
        kind = by_stored_type(stored.tensor(pairing.parts[0].source).dtype) if pairing.parts else ""
        if kind and name.endswith(".weight"):
            found[name.removesuffix(".weight")] = kind
    own = reference.prepared("").plain.state_dict()
    by_place = {own[f"{path}.weight"].data_ptr(): kind for path, kind in found.items() if f"{path}.weight" in own}
    tied = {name for name in own if name.endswith(".weight") and own[name].data_ptr() in by_place}
    return said_of(found | {name.removesuffix(".weight"): by_place[own[name].data_ptr()] for name in tied})
