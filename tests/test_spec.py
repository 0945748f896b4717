"""The pages in spec/ say what the code does: names of fields, files, codes and statuses cannot drift apart."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from weighbridge.cli.evidence import FORMS
from weighbridge.contract.document import ContractDocument, GateDocument, ParamDocument, SubjectDocument
from weighbridge.contract.resolved import ContractRef
from weighbridge.core.exit_code import ExitCode
from weighbridge.core.limits import fields, read
from weighbridge.core.model import STATUS_ORDER, SubjectKind
from weighbridge.evidence import archive, codec, disk, manifest, signatures, statement
from weighbridge.evidence.bundle import LOG_TAIL
from weighbridge.formats import trace_key
from weighbridge.forward import trace_file
from weighbridge.forward.stacks import Stack, Torch
from weighbridge.gates import config_agreement
from weighbridge.gates.families.local_errors import Limits
from weighbridge.gates.families.tensor_pairs import MECHANISMS, QUANTISED, UNEXPLAINED
from weighbridge.lanes.lane_evidence import Unfit
from weighbridge.lanes.lanes import Lane
from weighbridge.lanes.waivers import Waiver
from weighbridge.ledger.fold import EDGES, SCHEMA, LedgerEntry, LedgerStep
from weighbridge.ledger.sections import KINDS, PREMISES, Amendment, Landing
from weighbridge.model_config import model_keys
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.base import Form
from weighbridge.quantities.checkpoints import CONFIG_LISTS
from weighbridge.quantities.page import page as quantities_page
from weighbridge.quantities.runs import ANALYSIS, INSIDE, snapshot_name
from weighbridge.recorder.run_directory import DIAGNOSTICS
from weighbridge.report import exports
from weighbridge.run_logs import json_log
from weighbridge.spec.claims import STATES

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "weighbridge"


def page(name: str) -> str:
    return (ROOT / "spec" / f"{name}.md").read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """Cut out one section of a page, up to the next heading of the same rank."""
    rank = heading.partition(" ")[0]
    (found,) = re.findall(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(rank)}}} |\Z)", page(name), re.MULTILINE | re.DOTALL
    )
    return str(found)


def words(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def first_column(text: str) -> list[str]:
    """List what the first column of a table names, a cell's words one by one."""
    cells = re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
    return [word for cell in cells for word in words(cell)]


def names(cls: type) -> set[str]:
    return {item.name for item in dataclasses.fields(cls)}


# --- Contract ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "cls"),
    [
        ("## 2. The top of a contract", ContractDocument),
        ("## 3. Subjects", SubjectDocument),
        ("## 4. Gates", GateDocument),
    ],
)
def test_every_key_of_a_contract_is_on_its_page_and_no_other(heading: str, cls: type) -> None:
    assert sorted(first_column(section("contract", heading))) == sorted(item.key for item in fields(cls))


def test_every_subject_kind_and_key_of_a_parameter_is_on_the_page() -> None:
    kinds = re.search(r"^\| `kind` \| (.*?) \|", section("contract", "## 3. Subjects"), re.MULTILINE)
    assert kinds
    assert words(kinds[1]) == [kind.value for kind in SubjectKind]
    assert {item.key for item in fields(ParamDocument)} <= set(words(section("contract", "## 5. Parameters")))


# --- Bundle -----------------------------------------------------------------------------------------------------------


def test_every_file_of_a_bundle_is_on_its_page() -> None:
    files = {statement.FILE, manifest.FILE, manifest.CONTRACT_YAML, manifest.CONTRACT_JSON, manifest.VERDICTS,
             manifest.CANARIES, manifest.ENVIRONMENT}  # fmt: skip
    listed = first_column(section("bundle", "## Folder"))
    assert files <= set(listed)
    folders = {word.partition("/")[0] + "/" for word in listed if "/" in word}
    assert folders == {manifest.MEASUREMENTS, manifest.LOGS, manifest.SIGNATURES}


def test_the_caps_of_a_bundle_are_those_of_its_page() -> None:
    text = section("bundle", "## Folder")
    caps = (manifest.MAX_FILE >> 20, manifest.MAX_BUNDLE >> 30, f"{manifest.MAX_FILES:,}")
    assert "A file has at most {} MiB, a bundle at most {} GiB and {} files.".format(*caps) in text
    assert f"the last {LOG_TAIL >> 10} KiB" in text
    assert disk.MAX_DEPTH == 3
    assert "at most three parts" in text
    text = section("bundle", "## Archive")
    sizes = (archive.MAX_BYTES >> 30, archive.ALWAYS_INFLATED >> 20)
    assert "content beyond {} GiB or, above {} MiB, beyond a hundred times the archive".format(*sizes) in text
    assert archive.MAX_RATIO == 100


def test_a_signature_is_of_the_form_on_its_page() -> None:
    text = section("bundle", "## Signatures")
    (shown,) = re.findall(r"^    (\{.*\})$", text, re.MULTILINE)
    filled = shown.replace("KEYID", f'"{"0" * 64}"').replace("BASE64", f'"{"A" * 86}=="').replace(" ", "")
    assert signatures.FORM.fullmatch(filled.encode() + b"\n")
    assert f"DSSEv1 {len(signatures.PAYLOAD_TYPE)} {signatures.PAYLOAD_TYPE} LENGTH PAYLOAD" in text
    assert "`signatures/KEYID.dsse.json`" in text
    assert manifest.SIGNATURE.fullmatch("signatures/KEYID.dsse.json".replace("KEYID", "0" * 64))
    assert {"signature-form", "signature-of-another"} <= set(words(text))


def test_the_forms_of_export_are_on_their_page() -> None:
    text = section("bundle", "## Exports")
    assert first_column(text) == list(FORMS)
    assert {exports.TEST_RESULT, exports.SVR} <= {word.partition(" ")[0] for word in words(text)}


def test_every_field_of_the_statement_is_on_its_page() -> None:
    text = section("bundle", "## `statement.json`")
    assert statement.PREDICATE_TYPE in text
    named = {word.removeprefix("predicate.") for word in words(text)}
    assert names(statement.Predicate) <= named
    assert {"id", "version", "whole", "collect", "judge"} == names(ContractRef) <= named
    assert {"name", "version", "digest", "commit", "dirty"} == names(statement.Tool)
    assert names(statement.Companion) <= {*named, "role", "name", "sha256", "size", "sealed"}
    assert {"commit", "dirty"} <= names(statement.BoundSubject)


def test_every_field_of_a_measurement_and_of_a_finding_is_on_its_page() -> None:
    assert set(codec.HEAD) | {"value"} <= set(words(section("bundle", "## Measurements")))
    text = section("bundle", "## `verdicts.json`")
    assert codec.VERDICTS_SCHEMA in text
    listed = re.search(r"points at a figure: (.*?)\(a whole verdict", text)
    assert listed
    assert sorted(words(listed[1])) == sorted({*codec.FINDING, *codec.VERDICT})


def test_the_exit_codes_of_verifying_a_bundle_are_those_of_the_tool() -> None:
    printed = [int(code) for code in re.findall(r"\b(\d) where", section("bundle", "## Verifying"))]
    assert printed == [ExitCode.PASSED, ExitCode.FAILED, ExitCode.BLOCKED, ExitCode.ERROR]


# --- Ledger -----------------------------------------------------------------------------------------------------------


def test_every_field_and_step_of_the_ledger_is_on_its_page() -> None:
    text = section("ledger", "## Files")
    assert sorted(first_column(text)) == sorted(names(LedgerEntry))
    assert SCHEMA in text
    steps = re.search(r"^\| `step` \| (.*) \|$", text, re.MULTILINE)
    assert steps
    assert words(steps[1]) == [step.value for step in LedgerStep] == [step.value for step in EDGES]


def test_every_key_and_premise_of_an_amendment_is_on_its_page() -> None:
    keys, _, premises = section("amendment", "## Front matter").partition("| kind | id |")
    assert sorted(first_column(keys)) == sorted(names(Amendment))
    assert first_column(premises) == list(PREMISES)
    assert [name for name in names(Landing) if f"`{name}`" not in page("amendment")] == []
    assert [kind for kind in KINDS if f"`{kind}`" not in page("amendment")] == []
    assert [state for state in STATES if state not in page("amendment")] == []


def test_the_order_of_statuses_is_that_of_the_page() -> None:
    (listed,) = re.findall(r"^From lowest to highest: (.*)\.$", page("ledger"), re.MULTILINE)
    assert listed.split(", ") == [status.value for status in STATUS_ORDER]


def test_every_code_with_which_a_move_is_refused_is_on_the_page() -> None:
    source = "".join((SOURCE / "ledger" / f"{name}.py").read_text() for name in ("fold", "record", "store", "causes"))
    raised = set(re.findall(r'LedgerError\(\s*f?"([a-z-]+[a-z])"', source))
    assert raised <= set(words(page("ledger")))
    assert len(raised) >= 15


# --- A model's configuration ------------------------------------------------------------------------------------------


def test_every_field_of_a_configuration_is_on_its_page_with_its_keys_and_plain_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", section("model-config", "## Fields"), re.MULTILINE)
    assert tuple(name for name, *_ in rows) == config_agreement.FIELDS
    stored = model_keys.gguf_keys("ARCH")
    for name, config, gguf, default in rows[: -len(CONFIG_LISTS)]:
        keys = model_keys.field_keys().get(name, model_keys.FieldKeys())
        assert tuple(words(config)) == keys.config, name
        assert tuple(words(gguf)) == stored.get(name, ()), name
        if keys.default is not None:
            assert default == f"`{keys.default}`"


def test_every_file_that_says_what_a_model_is_is_on_its_page() -> None:
    named = set(words(section("model-config", "## Where it is read")))
    source = "".join(
        (SOURCE / "model_config" / f"{name}.py").read_text() for name in ("vocabulary", "model_description")
    )
    read = set(re.findall(r'"([a-z_]+\.(?:json|txt|jinja))"', source)) | {"config.json"}
    assert read <= named
    assert len(read) >= 8


# --- Run directory and forward subject --------------------------------------------------------------------------------


def test_every_file_of_a_run_directory_is_on_its_page() -> None:
    files = [json_log.HEAD, json_log.STEPS, json_log.EVENTS, json_log.LAYERS, DIAGNOSTICS]
    files.append(f"{ANALYSIS}/{snapshot_name(100)}")
    assert first_column(section("run-directory", "## Files")) == files
    assert json_log.SCHEMA in page("run-directory")


def test_what_a_recorder_writes_is_what_the_page_lists(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import json

    from weighbridge.recorder import Recorder
    from weighbridge.recorder.columns import SEEN

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    with Recorder(tmp_path / "a", model, optimizer, loader=[torch.ones(3, 2)], corpus_tokens=6) as recorder:
        for batch in recorder.loader:
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    run = json.loads((tmp_path / "a" / "run.json").read_text())
    assert set(run) <= set(first_column(section("run-directory", "## `run.json`")))
    (row,) = [json.loads(line) for line in (tmp_path / "a" / "steps.jsonl").read_text().splitlines()]
    of_every_step, seen_now_and_then = (
        set(first_column(section("run-directory", name))) for name in ("## `steps.jsonl`", "## Channels")
    )
    assert of_every_step - set(row) == {"skipped", "gradients_finite"}
    assert set(row) | set(SEEN) <= of_every_step | seen_now_and_then
    assert seen_now_and_then <= set(SEEN)
    probe, end = [json.loads(line) for line in (tmp_path / "a" / "events.jsonl").read_text().splitlines()]
    listed = first_column(section("run-directory", "### A probe"))
    assert set(probe) - {"event", "step"} <= set(listed)
    events = first_column(section("run-directory", "## `events.jsonl`").partition("### A probe")[0])
    assert {probe["event"], end["event"]} <= set(events)
    assert {"wrap", "restart", "exhausted", "recorder-failure"} <= set(events)


def test_every_column_of_what_is_seen_inside_a_model_is_on_its_page() -> None:
    assert set(first_column(section("run-directory", "## Inside the model"))) == set(INSIDE)


def test_every_field_of_a_stack_is_on_the_page_of_forward_subjects() -> None:
    whole = page("forward-subject")
    for stack, start, end in ((Torch, "**`Torch`**", "**`Stack`**"), (Stack, "**`Stack`**", "```python")):
        rows = re.findall(r"^\| (`.*?) \|", whole.partition(start)[2].partition(end)[0], re.MULTILINE)
        listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        assert listed == {item.name for item in dataclasses.fields(stack)}


def test_the_limits_of_forward_parity_are_those_on_the_page() -> None:
    given, text = read(Limits, {}), " ".join(page("forward-subject").split())
    assert f"{given.ratio} × that of a trusted run in the same dtype, or {given.floor_u} u" in text
    assert f"{given.rough_ratio} × that of a rough run" in text
    assert f"over the worst token or channel {given.tail_ratio:g} × or {given.tail_floor_u:g} u" in text


@pytest.mark.parametrize("cls", [trace_file.Facts, trace_file.Device])
def test_every_fact_of_a_trace_is_on_its_page_in_the_words_of_the_code(cls: type) -> None:
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", section("trace", "## Facts"), re.MULTILINE)
    printed = [(item.key, item.doc.text, item.doc.choices) for item in fields(cls)]
    found = listed[-2:] if cls is trace_file.Device else listed[:-2]
    assert [(name, said.partition(" (`")[0]) for name, said in found] == [(name, text) for name, text, _ in printed]
    assert [tuple(words(said.partition(" (`")[1] + said.partition(" (`")[2])) for _, said in found] == [
        choices for *_, choices in printed
    ]
    required = re.search(r"^(.*) are required\.", section("trace", "## Facts"), re.MULTILINE)
    assert required
    if cls is trace_file.Facts:
        assert words(required[1]) == sorted(
            (item.key for item in fields(cls) if item.required),
            key=["stack", "device", "dtype", "tokens", "order"].index,
        )


def test_the_page_of_traces_names_what_is_stored_and_its_key() -> None:
    text = section("trace", "## The file")
    assert {*trace_file.HELD_AS, trace_key.KEY} <= set(words(text))


def test_every_link_between_pages_leads_somewhere() -> None:
    for path in sorted((ROOT / "spec").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


def test_every_mechanism_is_explained_in_the_order_in_which_they_are_tried() -> None:
    found = [name for name in words(section("tensor-values", "## Mechanisms")) if name not in (UNEXPLAINED, QUANTISED)]
    assert tuple(found) == MECHANISMS
    assert {UNEXPLAINED, QUANTISED} <= set(words(section("tensor-values", "## Mechanisms")))


# --- Quantities -------------------------------------------------------------------------------------------------------


def test_the_page_of_quantities_is_what_follows_from_the_dataclasses() -> None:
    assert page("quantities") == quantities_page(), "run `make spec`"


def test_every_quantity_and_field_is_on_the_page_of_quantities() -> None:
    for name, quantity in QUANTITIES.items():
        printed = section("quantities", f"## {name}")
        if quantity.form is not Form.SERIES:
            assert first_column(printed) == [item.key for item in fields(quantity.row)]


def test_every_link_into_the_page_of_quantities_leads_to_a_heading() -> None:
    headings = {heading.lower() for heading in re.findall(r"^## (\w+)$", page("quantities"), re.MULTILINE)}
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "spec").glob("*.md"))
    anchors = re.findall(r"\]\((?:quantities\.md)?#([a-z_]+)\)", pages)
    assert set(anchors) <= headings
    assert len(anchors) > 10


def test_the_keys_and_codes_of_waivers_and_lanes_are_those_of_the_code() -> None:
    listed = first_column(page("waivers"))
    keys = [word for word in listed if not word.startswith("waive")]
    assert sorted(keys) == sorted(item.key for item in fields(Waiver))
    coded = (SOURCE / "lanes" / "waivers.py").read_text(encoding="utf-8")
    assert {word for word in listed if word not in keys} == set(re.findall(r'"(waive[a-z]*-[a-z-]+)"', coded))
    listed = first_column(page("lanes"))
    assert sorted(listed) == sorted([*(item.key for item in fields(Lane)), *map(str, Unfit)])
