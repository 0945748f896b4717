from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.cases import each

from weighbridge.contract.checks import loosened
from weighbridge.core import limits
from weighbridge.core.limits import Doc, LimitsError, plain, read, schema
from weighbridge.gates import KINDS


class Statistic(enum.StrEnum):
    MEDIAN = "median"
    MEAN = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    source: Annotated[str, Doc("where from", name="from")]
    share: Annotated[float, Doc(gt=0, le=1)] = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    below_ms: Annotated[float, Doc("budget", unit="ms", gt=0, le=1e7, tight="down")]
    statistic: Annotated[Statistic, Doc("which")] = Statistic.MEDIAN
    min_samples: Annotated[int, Doc("how many", ge=1, lt=1000, tight="up")] = 30
    steps: Annotated[tuple[int, int] | None, Doc("window, inclusive", ge=0)] = None
    strict: Annotated[bool, Doc(tight="up")] = True
    policy: Annotated[str, Doc(choices=("same", "lossless"), tight="down")] = "same"
    name: Annotated[str, Doc(pattern="[a-z]+", form="lower-case letters")] = "a"
    names: Annotated[tuple[str, ...], Doc(min_items=1, tight="up")] = ("x",)
    allowed: Annotated[tuple[Inner, ...], Doc(tight="down")] = ()
    share: Annotated[Mapping[str, float], Doc(ge=0, keys="[a-z]+")] = field(default_factory=dict)
    where: Annotated[Mapping[str, str | int | float | bool], Doc()] = field(default_factory=dict)
    at_most: Annotated[float | None, Doc(tight="down")] = None


def problems(**given: object) -> list[str]:
    with pytest.raises(LimitsError) as caught:
        read(Sample, {"below_ms": 1, **given})
    return [f"{'.'.join(map(str, p.path))}: {p.code}: {p.what}" for p in caught.value.problems]


@each(
    "given, printed",
    [
        ({"below_ms": 0}, ["below_ms: out-of-bounds: 0.0 is not > 0"]),
        ({"below_ms": 1e308}, ["below_ms: out-of-bounds: 1e+308 is not ≤ 1e+07"]),
        ({"below_ms": float("nan")}, ["below_ms: out-of-bounds: nan is not finite"]),
        ({"below_ms": "500"}, ["below_ms: wrong-type: '500' is not a number"]),
        ({"below_ms": True}, ["below_ms: wrong-type: true is not a number"]),
        ({"below_ms": None}, ["below_ms: wrong-type: null is not a number"]),
        ({"below_ms": 10**400}, [f"below_ms: wrong-type: {10**400} is not a number"]),
        ({"min_samples": 1000}, ["min_samples: out-of-bounds: 1000 is not < 1000"]),
        ({"min_samples": 0}, ["min_samples: out-of-bounds: 0 is not ≥ 1"]),
        ({"min_samples": 1.5}, ["min_samples: wrong-type: 1.5 is not a whole number"]),
        ({"strict": 1}, ["strict: wrong-type: 1 is not true or false"]),
        (
            {"statistic": "medain"},
            ["statistic: unknown-choice: 'medain' is not one of median, mean; did you mean 'median'?"],
        ),
        ({"policy": "any"}, ["policy: unknown-choice: 'any' is not one of same, lossless"]),
        ({"policy": 3}, ["policy: wrong-type: 3 is not a text"]),
        ({"name": "A"}, ["name: bad-form: 'A' is not lower-case letters"]),
        ({"name": "a\n"}, ["name: bad-form: 'a\\n' is not lower-case letters"]),
        ({"steps": [20]}, ["steps: wrong-length: a list of 1, not of 2"]),
        ({"steps": "20..49"}, ["steps: wrong-type: '20..49' is not a list"]),
        ({"steps": [20, -1]}, ["steps.1: out-of-bounds: -1 is not ≥ 0"]),
        ({"names": []}, ["names: wrong-length: a list of 0, at least 1 needed"]),
        (
            {"allowed": [{"from": "a"}, {"form": "b"}]},
            ["allowed.1.form: unknown-key: unknown key 'form'; did you mean 'from'?"],
        ),
        ({"allowed": [{}]}, ["allowed.0: missing-key: missing key 'from'"]),
        ({"allowed": [3]}, ["allowed.0: wrong-type: 3 is not a mapping"]),
        ({"share": {"a": -1}}, ["share.a: out-of-bounds: -1.0 is not ≥ 0"]),
        ({"share": {"A": 1}}, ["share.A: bad-form: the name 'A' is not of the form [a-z]+"]),
        ({"share": [1]}, ["share: wrong-type: a list is not a mapping"]),
        (
            {"where": {"a": [1]}},
            ["where.a: wrong-type: a list is none of: a text, a whole number, a number, true or false"],
        ),
        (
            {"where": {"a": None}},
            ["where.a: wrong-type: null is none of: a text, a whole number, a number, true or false"],
        ),
        ({"where": {"a": float("inf")}}, ["where.a: out-of-bounds: inf is not finite"]),
        ({"minsamples": 30}, ["minsamples: unknown-key: unknown key 'minsamples'; did you mean 'min_samples'?"]),
        (
            {"allowed": [{"from": "a", "zzz": 1}]},
            ["allowed.0.zzz: unknown-key: unknown key 'zzz'; known: from, share"],
        ),
        ({"strict": 1, "name": 2}, ["strict: wrong-type: 1 is not true or false", "name: wrong-type: 2 is not a text"]),
    ],
)
def test_a_wrong_value_is_reported_with_its_path_and_what_is_right(
    given: dict[str, object], printed: list[str]
) -> None:
    assert problems(**given) == printed


def test_a_near_miss_of_a_missing_key_is_reported_once() -> None:
    with pytest.raises(LimitsError) as caught:
        read(Sample, {"below": 1})
    assert [problem.code for problem in caught.value.problems] == ["unknown-key"]


def test_a_key_that_is_there_is_not_suggested_for_an_unknown_one() -> None:
    assert problems(min_sample=1, min_samples=2)[0].startswith(
        "min_sample: unknown-key: unknown key 'min_sample'; known:"
    )


def test_a_long_text_is_cut_in_a_message() -> None:
    assert problems(name="A" * 100) == ["name: bad-form: '" + "A" * 59 + "…' is not lower-case letters"]


def test_numbers_are_taken_as_json_schema_takes_them() -> None:
    value = read(Sample, {"below_ms": 500, "min_samples": 30.0, "steps": [20, 49]})
    assert (value.below_ms, type(value.below_ms)) == (500.0, float)
    assert (value.min_samples, type(value.min_samples)) == (30, int)
    assert value.steps == (20, 49)


def test_plain_fills_in_defaults_and_reads_back_the_same() -> None:
    value = read(Sample, {"below_ms": 500, "allowed": [{"from": "a"}], "where": {"n": 1, "b": True}})
    assert plain(value) == {
        "below_ms": 500.0,
        "statistic": "median",
        "min_samples": 30,
        "steps": None,
        "strict": True,
        "policy": "same",
        "name": "a",
        "names": ["x"],
        "allowed": [{"from": "a", "share": 0.5}],
        "share": {},
        "where": {"n": 1, "b": True},
        "at_most": None,
    }
    assert read(Sample, plain(value)) == value


@each(
    "old, new, looser",
    [
        ({"below_ms": 500}, {"below_ms": 500}, ()),
        ({"below_ms": 500}, {"below_ms": 499}, ()),
        ({"below_ms": 500}, {"below_ms": 501}, ("below_ms",)),
        ({"min_samples": 30}, {"min_samples": 31}, ()),
        ({"min_samples": 30}, {"min_samples": 29}, ("min_samples",)),
        ({"strict": False}, {"strict": True}, ()),
        ({"strict": True}, {"strict": False}, ("strict",)),
        ({"policy": "lossless"}, {"policy": "same"}, ()),
        ({"policy": "same"}, {"policy": "lossless"}, ("policy",)),
        ({"names": ["a"]}, {"names": ["b", "a"]}, ()),
        ({"names": ["a", "b"]}, {"names": ["a"]}, ("names",)),
        ({"allowed": [{"from": "a"}]}, {"allowed": []}, ()),
        ({"allowed": []}, {"allowed": [{"from": "a"}]}, ("allowed",)),
        ({"at_most": None}, {"at_most": 3}, ()),
        ({"at_most": 3}, {"at_most": None}, ("at_most",)),
        ({"steps": [20, 49]}, {"steps": [20, 50]}, ("steps",)),
        ({"name": "a"}, {"name": "b"}, ("name",)),
        ({"below_ms": 5, "strict": True}, {"below_ms": 6, "strict": False}, ("below_ms", "strict")),
    ],
)
def test_what_is_not_known_to_be_as_tight_is_looser(
    old: dict[str, object], new: dict[str, object], looser: tuple[str, ...]
) -> None:
    def made(given: dict[str, object]) -> Sample:
        return read(Sample, {"below_ms": 1, **given})

    assert loosened(made(old), made(new)) == looser


# --- The schema accepts what the reader accepts -----------------------------------------------------------------------

JUNK: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.5, 30.0, "", "x", "a\n", "median", [], [1], {}, {"a": 1}]
)


def values(kind: Any, doc: Doc) -> st.SearchStrategy[Any]:
    """Give mostly right values of a field, at and around its bounds."""
    bounds = [bound for bound in (doc.gt, doc.ge, doc.lt, doc.le) if bound is not None]
    near = st.sampled_from([*(b + d for b in bounds for d in (-1, -0.5, 0, 0.5, 1)), 0, 1, 2, 20, 49, 0.5])
    described: dict[str, Any] = schema(_holder(kind, doc))["properties"]["value"]
    words: list[str] = described.get("enum", []) or next(
        (b["enum"] for b in described.get("anyOf", []) if "enum" in b), []
    )
    texts = st.sampled_from([*words, *doc.choices, "cuda", "a", "A", "*"])
    if "items" in described or any("items" in branch for branch in described.get("anyOf", [])):
        items = next(b["items"] for b in (described, *described.get("anyOf", [])) if "items" in b)
        inner = (
            st.just({"tensors": "*", "from": "BF16", "to": "F32"}) if items.get("type") == "object" else texts | near
        )
        return st.lists(inner | JUNK, max_size=3) | st.lists(near.map(int), min_size=2, max_size=2) | JUNK
    return texts | near | near.map(int) | st.booleans() | JUNK


def _holder(kind: Any, doc: Doc) -> type:
    return dataclasses.make_dataclass("Holder", [("value", Annotated[kind, doc])])


def mappings(cls: type) -> st.SearchStrategy[dict[str, Any]]:
    known = {item.key: values(item.type, item.doc) for item in limits.fields(cls)}
    required = {item.key: known[item.key] for item in limits.fields(cls) if item.required}
    full = st.fixed_dictionaries(required, optional={key: known[key] for key in known if key not in required})
    loose = st.dictionaries(st.sampled_from([*known, "unknown"]), JUNK, max_size=3)
    return full | st.builds(lambda a, b: {**a, **b}, full, loose) | loose


CLASSES = [Sample, *(kind.limits for kind in KINDS.values()), *(kind.measure for kind in KINDS.values())]


@pytest.mark.exhaustive
@each("cls", CLASSES)
def test_the_reader_accepts_exactly_what_the_schema_accepts(cls: type) -> None:
    described = schema(cls)
    Draft202012Validator.check_schema(described)
    validator = Draft202012Validator(described)

    @given(mappings(cls))
    def agrees(data: dict[str, Any]) -> None:
        try:
            value: object = read(cls, data)
        except LimitsError:
            assert not validator.is_valid(data)
        else:
            assert validator.is_valid(data)
            assert validator.is_valid(plain(value))
            assert read(cls, plain(value)) == value

    agrees()


@each("kind", KINDS)
def test_no_limit_may_be_set_so_far_out_that_its_clause_is_off(kind: str) -> None:
    """One that loosens as it grows ends somewhere, and one that loosens as it falls begins above the smallest float."""
    for name, hint in get_type_hints(KINDS[kind].limits, include_extras=True).items():
        inner = get_args(hint)[:1]
        is_number = {int, float} & {*inner, *(one for of in inner for one in get_args(of))}
        for doc in [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Doc) and is_number]:
            assert doc.tight != "down" or (doc.le, doc.lt) != (None, None), name
            assert doc.tight != "up" or doc.ge is not None, name
