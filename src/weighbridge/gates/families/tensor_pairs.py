"""What all kinds share that compare two checkpoints tensor by tensor: dtypes, mechanisms, verdicts."""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses import kind
from weighbridge.clauses.kind import Evidence, Kind, Mutated, Mutation, Need, blocked, rows_of
from weighbridge.core import Doc, Fields, Json, Offence, Outcome, SubjectKind, Verdict, dataclass, field, plain, replace
from weighbridge.core.canonical import grouped
from weighbridge.gates.families.block_types import BOUND
from weighbridge.quantities.checkpoints import FileBeside
from weighbridge.quantities.tensors import TensorPair

Coded: TypeAlias = Sequence[tuple[TensorPair, str]]  # with what is wrong with it, "" where nothing is
Figures: TypeAlias = Callable[[TensorPair, str, str], Fields]  # of a pair, from its code and its mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class Rename:
    """One rewriting of names."""

    pattern: Annotated[str, Doc("a regular expression, searched for in the source's name", name="from")]
    replacement: Annotated[str, Doc("what takes its place", name="to")]


TABLE = ("map", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    """How tensors of one pattern are made: `<name>` is what stands between two dots, `<...>` anything."""

    tensor: Annotated[str, Doc("the candidate's tensors: a name, or a pattern with places such as <layer>")]
    of: Annotated[
        tuple[str, ...],
        Doc("the source's tensors, one after the other; those of <each> number are stacked", min_items=1),
    ]
    view: Annotated[
        tuple[int | str, ...],
        Doc("dimensions of the rows: numbers, one -1, heads, kv_heads, or dim0, dim1 ... of the tensor itself"),
    ] = ()
    index: Annotated[tuple[int | str, ...], Doc('what is kept of each dimension of the view: 0, "0:4" or ":"')] = ()
    permute: Annotated[tuple[int, ...], Doc("the dimensions of the view, in their new order")] = ()
    transpose: Annotated[bool, Doc("rows and columns exchanged")] = False
    cat: Annotated[int, Doc("the dimension of the view along which the tensors are put together", ge=0, le=1)] = 0
    add: Annotated[float, Doc("what is added to each value", ge=-1e6, le=1e6)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is looked at."""

    headers: Annotated[bool, Doc("dtypes and shapes alone; content is then BLOCKED")] = False
    map: Annotated[str, Doc("how names map: auto tells it from both sides", choices=("auto", "identity", "table"))] = (
        "auto"
    )
    names: Annotated[Mapping[str, str], Doc("the source's name by the candidate's", only_with=TABLE)] = field(
        default_factory=dict
    )
    rename: Annotated[
        tuple[Rename, ...], Doc("patterns that rewrite the source's names, in turn", only_with=TABLE)
    ] = ()
    make: Annotated[
        tuple[Make, ...], Doc("how tensors are made that are more than renamed; the first that fits", only_with=TABLE)
    ] = ()


SIDES = ("source", "candidate")
FAILS = ("dtype", "shape", "missing", "extra")
BLOCKED = ("not-compared", "packed", "no-rule", "nothing-compared")


def kind_of_pairs(
    name: str, *, fails: Sequence[str], mutations: Sequence[Mutation[Any]], blocked: Sequence[str] = (),
    optional_roles: tuple[str, ...] = (), **more: Any,
) -> Kind[Any]:  # fmt: skip
    """Return a kind that judges the pairs of two checkpoints; `fails` and `blocked` are the codes that are its own."""
    options = ("headers", "map", "names", "rename", "make")
    of = ("source", *optional_roles, "candidate")  # the candidate last: several of one source are compared at once
    return Kind(
        name=name, roles=dict.fromkeys(of, SubjectKind.CHECKPOINT), optional_roles=optional_roles,
        needs={"pairs": Need("tensor_values", of=of, options=options),
               "beside": Need("files_beside", of=SIDES, optional=True)},
        measure=Look, codes=kind.codes(*fails, *FAILS, blocked=(*BLOCKED, *blocked, NOT_READ)),
        mutations=(*mutations, Mutation("another file beside the import", NOT_READ, _beside_changed, Outcome.BLOCKED)),
        **more,
    )  # fmt: skip


NOT_READ = "not-read"
ADDED = FileBeside(name="~/model.safetensors", role="weights", source="", candidate="1 bytes", why="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """Files beside the tensors that decide nothing."""

    file: Annotated[str, Doc("glob over paths in the folder")]
    why: Annotated[str, Doc("why they may be other than the source's, or on one side alone")]


def with_files(verdict: Verdict, evidence: Evidence, limits: Any) -> Verdict:
    """Return the verdict of the tensors, or that a file which a loader may read was not compared, and differs."""
    if verdict.outcome is not Outcome.PASS or "beside" not in evidence:
        return verdict
    noted, offences = [], []
    for row in rows_of(evidence, "beside", FileBeside):
        why = row.why or next((one.why for one in limits.may_ignore if fnmatchcase(row.name, one.file)), "")
        if row.source != row.candidate and why:
            noted.append(f"{row.name} ({why})")
        elif row.source != row.candidate:
            alone = "source" if row.source else "import"
            state = "differs from the source's" if row.source and row.candidate else f"is in the {alone} alone"
            offences.append(Offence(place=row.name, code=NOT_READ, figures={"role": row.role, "state": state}))
    if offences:
        return blocked(NOT_READ, {"files": len(offences)}, offences=offences, of=verdict.of + len(offences))
    return replace(verdict, figures={**verdict.figures, "beside": noted}) if noted else verdict


def _beside_changed(evidence: Evidence, limits: Any, _places: Sequence[str]) -> Mutated | str:
    """Lay another file beside the import, and change those that both sides have."""
    if "beside" not in evidence or any(fnmatchcase(ADDED.name, one.file) for one in limits.may_ignore):
        return "no file beside was looked for, or every one may be ignored"
    rows = rows_of(evidence, "beside", FileBeside)
    return Mutated(kind.with_rows(evidence, "beside", (*(replace(row, candidate="~") for row in rows), ADDED)))


MayIgnore: TypeAlias = Annotated[
    tuple[Ignored, ...], Doc("files of a bound folder that are not read and may differ, with the reason", tight="down")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """One change of dtype that is meant."""

    tensors: Annotated[str, Doc("glob over tensor names")] = "*"
    source: Annotated[str, Doc("dtype in the source", name="from")]
    candidate: Annotated[str, Doc("dtype in the candidate", name="to")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """What a candidate was meant to be: a policy, and what may be otherwise."""

    policy: str
    allow: Annotated[tuple[Allowed, ...], Doc("further changes of dtype that are meant", tight="down")] = ()
    allow_missing: Annotated[tuple[str, ...], Doc("globs of source tensors that may be absent", tight="down")] = ()
    allow_extra: Annotated[tuple[str, ...], Doc("globs of tensors that may be new", tight="down")] = ()
    may_ignore: MayIgnore = ()

    def allows(self, pair: TensorPair) -> bool:
        """Return whether a line of `allow` means this change of dtype of this tensor."""
        change = pair.source_dtype, pair.candidate_dtype
        return any(change == (one.source, one.candidate) and fnmatchcase(pair.name, one.tensors) for one in self.allow)


LOSSLESS: Mapping[str, tuple[str, ...]] = {
    "BF16": ("F32", "F64"),
    "F16": ("F32", "F64"),
    "F32": ("F64",),
    "F8_E4M3": ("F16", "BF16", "F32", "F64"),
    "F8_E5M2": ("F16", "BF16", "F32", "F64"),
    "I8": ("I16", "I32", "I64", "F16", "BF16", "F32", "F64"),
    "U8": ("I16", "U16", "I32", "U32", "I64", "U64", "F16", "F32", "F64"),
    "I16": ("I32", "I64", "F32", "F64"),
    "U16": ("I32", "U32", "I64", "U64", "F32", "F64"),
    "I32": ("I64", "F64"),
    "U32": ("I64", "U64", "F64"),
}


def is_exact(pair: TensorPair) -> bool:
    """Return whether the candidate's dtype holds every value of the source's."""
    return pair.candidate_dtype in (pair.source_dtype, *LOSSLESS.get(pair.source_dtype, ()))


EXPONENTIAL, EXPONENTIAL_ULPS = "-exp", 1  # NumPy's and PyTorch's exponentials differ by one unit of the last place
GENERATED_ERROR = 1e-6  # relative; a table computed in float32, compared with one computed in float64


def is_exponential(pair: TensorPair) -> bool:
    """Return whether a tensor is the exponential of its source's, as near as two libraries compute it."""
    return pair.transform == EXPONENTIAL and pair.max_ulps is not None and pair.max_ulps <= EXPONENTIAL_ULPS


def may_go(pair: TensorPair) -> bool:
    """Return whether a tensor of the source alone is no loss: repeated, or left out by rule."""
    return pair.identical_to is not None or bool(pair.drop_rule or pair.left_out)


def may_come(pair: TensorPair) -> bool:
    """Return whether a tensor of the candidate alone is what its configuration gives, or repeats another one."""
    computed = pair.generated_error is not None and pair.generated_error <= GENERATED_ERROR
    return computed or pair.identical_to is not None or bool(pair.left_out)


# Simplest first: the order in which a mechanism is offered as the explanation.
KEYS = "packing-keys"  # of codes and scales that are the source's, byte for byte
MECHANISMS: tuple[str, ...] = (
    KEYS,
    *("value-cast", "requantised", "requantised-through-f16", "requantised-through-bf16", "bf16-bits-as-f16"),
    *("f16-bits-as-bf16", "relabelled", "truncated", "byte-swapped", "through-f16", "through-bf16"),
    *("truncated-through-bf16", "permutation-missing", "wrong-head-count", "permutation-twice", "permutation-inverse"),
    *("permuted-unasked", "plus-one-missing", "plus-one-twice", "plus-one-unasked", "minus-exp-missing", "transposed"),
    *("gate-and-up-swapped", "layer-before", "layer-after", "experts-swapped", "parts-swapped", "other-tensor"),
    *("padded-vocabulary", "swapped", "scaled", "adapter-not-merged", "adapter-merged-twice", "adapter-scaled"),
)
ADAPTED = "adapter-merged"  # what was meant of a weight that an adapter changes
EXACT = ("identical", "value-cast", "requantised")
UNEXPLAINED = "different content"
QUANTISED = "quantised"  # the content of blocks in a type that nobody meant, within that type's bound
MULTIPLIED = re.compile(r"\bx [\d.]|\bmultiplied\b")  # of a transform, by numbers of the configuration
MISREAD = ("bf16-bits-as-f16", "f16-bits-as-bf16")
KEPT: Mapping[str, str] = {
    **dict.fromkeys((*MISREAD, "relabelled"), "bits"),
    **dict.fromkeys(("value-cast", "requantised", "truncated", QUANTISED), "values"),
}  # of the source, by what explains a wrong dtype


def explained(pair: TensorPair, name: str) -> int | None:
    """Return how many elements a mechanism gives: bit for bit, or all within the bound of a block type."""
    error = pair.errors_otherwise.get(name)
    near = error is not None and error <= BOUND.get(pair.candidate_dtype, 0.0)
    return pair.elements if near else pair.reproduced.get(name)


def mechanism(offenders: Sequence[TensorPair]) -> str:
    """Return the simplest mechanism that explains every element of every offender; never one from zeros alone."""
    full = (name for name in MECHANISMS if all(explained(pair, name) == pair.elements for pair in offenders))
    return next(full, UNEXPLAINED) if any(pair.nonzero for pair in offenders) else UNEXPLAINED


def two_sided(pair: TensorPair) -> bool:
    """Return whether a tensor is on both sides."""
    return bool(pair.source_dtype and pair.candidate_dtype)


def columns_of(pair: TensorPair, columns: Sequence[str]) -> dict[str, Json]:
    """Return some columns of a pair, as figures for the words of a verdict."""
    return {name: plain(getattr(pair, name)) for name in columns}


PACKED = ("packed", "packing", "codes", "distance", "factor", "groups", "outputs", "channels", "rescaled", "unloadable")


def explanation(pair: TensorPair, code: str, name: str, elements: int) -> Fields:
    """Return the figures of a mechanism that gives so many elements."""
    if code == "overflow":  # it is the cast that was meant, so no mechanism explains it
        return {"overflowed": pair.overflowed}
    if code in PACKED:  # codes are no values, so no mechanism speaks of them
        dtypes = f"{pair.source_dtype} -> {pair.candidate_dtype}"
        stored_as = dtypes if pair.candidate_dtype in BOUND else f"packed by {pair.packed}"
        return {"packed": pair.packed, "not_nearest": pair.not_nearest, "stored_as": stored_as}
    if code == "no-rule":
        return {"no_rule": pair.no_rule}
    figures: dict[str, Json] = {"mechanism": name, "explained": elements}
    if code == "adapter":
        beyond = pair.elements - pair.reproduced.get(ADAPTED, 0)
        return figures | {"beyond": beyond, "adapter_share": pair.adapter_share}
    if code == "dtype":  # a mechanism keeps the source's bits only where it has that dtype itself
        rounded_first = name in MISREAD and not name.startswith(pair.source_dtype.lower())
        nearest = max(MECHANISMS, key=lambda one: pair.reproduced.get(one, 0))
        if name == UNEXPLAINED and pair.elements < 2 * (given := pair.reproduced.get(nearest, 0)) < 2 * pair.elements:
            figures |= {"explained": given, "nearest": nearest}  # of most elements, which no mechanism gives all of
        multiplied = f", {pair.transform}," if MULTIPLIED.search(pair.transform) else ""
        figures["held"] = ("values" if rounded_first else KEPT.get(name, "tensor")) + multiplied
    figures |= {"keys": pair.packed} if name == KEYS else {}
    return figures | ({"other": pair.other} if name == "other-tensor" else {})


UNREAD = ("not-compared", "no-rule", "packed", "rescaled")
UNRULED = ("missing", "extra", "shape", "content", "bytes", "bound")  # what a rule might explain that nobody has


def _offences(coded: Coded, figures: Figures) -> list[Offence]:
    """Return an offence for each pair; those of one change of dtype are explained together."""
    compared = (pair for pair, code in coded if two_sided(pair) and code not in (*UNREAD, *PACKED))
    alike = grouped(((pair.source_dtype, pair.candidate_dtype), pair) for pair in compared)
    together = {pair.name: found for pairs in alike.values() for found in (mechanism(pairs),) for pair in pairs}
    found = ((pair.name, code, figures(pair, code, together.get(pair.name, ""))) for pair, code in coded)
    return [Offence(place=place, code=code, figures=why) for place, code, why in found]


def verdict_of(coded: Coded, figures: Figures, summary: Fields, *, names: int | None = None) -> Verdict:
    """Return what the codes of all pairs come to: what is broken first, then what was not compared, then a PASS."""
    coded = [(pair, "no-rule" if pair.no_rule and code in UNRULED else code) for pair, code in coded]
    looked = [pair.name for pair, _ in coded]
    if broken := [(pair, code) for pair, code in coded if code not in ("", *UNREAD)]:
        return kind.failed(_offences(broken, figures), looked=looked, unit="tensors", figures=summary)
    if unread := [(pair, code) for pair, code in coded if code]:
        changes = sorted({f"{pair.source_dtype} -> {pair.candidate_dtype}" for pair, _ in unread})
        said: Fields = {"tensors": len(unread), "changes": changes}
        why = next(code for code in reversed(UNREAD) if any(code == one for _, one in unread))
        return blocked(why, said, offences=_offences(unread, figures), of=len(coded))
    if not any(two_sided(pair) and pair.elements for pair, _ in coded):
        count = {"tensors": len(coded)} | ({} if names is None else {"names": names})
        return blocked("nothing-compared", count)
    return kind.passed(looked=looked, unit="tensors", figures=summary)
