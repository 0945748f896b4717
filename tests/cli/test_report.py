"""`weighbridge report`: one file that needs nothing, says everything in text, and refuses what does not hold."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import shutil
import struct
import sys
import zlib
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Cli
from tests.verifiers.weighing import recorded

from weighbridge.core.data import data_path
from weighbridge.page.drawing import Line, Mark, bars, curves, heatmap
from weighbridge.page.sources import courses_of

HERE = data_path("verifiers") / "specimens" / "checkpoints"
SOURCE, GOOD, BAD = (HERE / name for name in ("source.safetensors", "import.gguf", "relabelled.safetensors"))
STYLE = Path(sys.modules["weighbridge.page.drawing"].__file__ or "").with_name("page.css").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The elements of a page, its text, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.said: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        self.open.append(tag) if tag not in ("meta", "input", "br") else None

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.said.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.said).split())

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def sealed(cli: Cli, *arguments: object) -> Path:
    before = set(Path(".weighbridge/bundles").glob("*"))
    cli("verify", *arguments)
    (bundle,) = set(Path(".weighbridge/bundles").glob("*")) - before
    return bundle


def of_import(cli: Cli, imported: Path) -> Path:
    return sealed(cli, "builtin:checkpoint-import", "--subject", f"source={SOURCE}", "--subject", f"import={imported}")


def of_run(cli: Cli, folder: Path) -> Path:
    return sealed(cli, "builtin:training-log", "--subject", f"run={recorded(folder)}")


def drawn(cli: Cli, *arguments: object) -> str:
    ended = cli("report", *arguments, "-o", "page.html")
    assert ended.code == 0, ended.err
    return Path("page.html").read_text(encoding="utf-8")


def test_a_page_is_one_file_that_fetches_nothing_and_allows_only_its_own_style_and_script(cli: Cli) -> None:
    text = drawn(cli, of_import(cli, BAD))
    page = Page(text)
    assert page.open == []
    links = [value for _, attributes in page.elements for key, value in attributes.items() if key in ("src", "href")]
    assert {link[:5] for link in links} <= {"#boar", "#tens", "#find", "data:"}
    assert not re.search(r"https?:|@import|url\(", text)
    (policy,) = (one["content"] for one in page.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    for name in ("style", "script"):
        (body,) = re.findall(f"<{name}>(.*?)</{name}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert not [one for _, one in page.elements if "style" in one or any(key.startswith("on") for key in one)]
    assert len(text) <= 200_000


def test_without_script_and_style_every_outcome_its_reason_and_what_to_do_are_in_the_text(cli: Cli) -> None:
    text = Page(drawn(cli, of_import(cli, BAD))).text
    parts = (
        *("Can this go on?", "No.", "FAIL", "GATE-IMPORT-001", "Likely cause:", "Try first:", "faults planted: "),
        *("Is every tensor its source's?", "Of 1 gate: 1 failed.", "tensors", "Not asked here:", "Is it training?"),
        *("Do gradients reach every layer?", "Where do the two sides part?", "What changed"),
    )
    places = [text.find(part) for part in parts]
    assert -1 not in places, [part for part, place in zip(parts, places, strict=True) if place < 0]
    questions = [text.find(part) for part in parts if part.endswith("?")]
    assert questions == sorted(questions)


def test_the_same_bundles_give_the_same_bytes(cli: Cli, tmp_path: Path) -> None:
    one, other = of_import(cli, GOOD), of_run(cli, tmp_path / "run")
    assert drawn(cli, one, other) == drawn(cli, other, one)


def test_a_bundle_that_does_not_hold_is_refused_and_nothing_is_written(cli: Cli) -> None:
    bundle = of_import(cli, BAD)
    verdicts = bundle / "verdicts.json"
    verdicts.write_text(verdicts.read_text().replace('"FAIL"', '"PASS"', 1))
    ended = cli("report", bundle, "-o", "page.html")
    assert (ended.code, Path("page.html").exists()) == (4, False)
    assert "verdicts.json" in ended.err


def test_a_run_that_is_not_the_sealed_one_is_refused(cli: Cli, tmp_path: Path) -> None:
    bundle = of_run(cli, tmp_path / "run")
    assert "layers.jsonl was not recorded." in drawn(cli, bundle, "--run", tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    with (tmp_path / "other" / "steps.jsonl").open("a") as file:
        file.write('{"step": 120, "loss": 0.1}\n')
    for wrong in (tmp_path / "other", tmp_path):
        ended = cli("report", bundle, "--run", wrong, "-o", "other.html")
        assert (ended.code, Path("other.html").exists()) == (4, False)
        assert "is not the run that was sealed" in ended.err
    of_no_run = of_import(cli, GOOD)
    assert "no bundle is of a run" in cli("report", of_no_run, "--run", tmp_path / "run").err


def test_of_two_bundles_both_are_shown_and_their_gate_counts_once(cli: Cli) -> None:
    text = Page(drawn(cli, of_import(cli, BAD), of_import(cli, GOOD))).text
    assert "2 bundles" in text
    assert "2 verdicts by 1 gate: 1 failed, 1 passed." in text


def test_an_older_finding_is_one_of_the_same_subject_and_says_which(cli: Cli) -> None:
    mended = Path("model.bin")
    shutil.copyfile(BAD, mended)
    older = of_import(cli, mended)
    shutil.copyfile(GOOD, mended)
    text = Page(drawn(cli, older, of_import(cli, mended))).text
    newer = "a newer bundle of source=\\S+, import=model.bin, policy lossless"
    assert re.search(rf"FAIL .*Older: {newer} \([-0-9T:]+\) says PASS\.", text)
    assert re.search(r"\d+ places differ between the two newest bundles of source=\S+, import=model.bin", text)


def test_bundles_of_other_files_are_no_older_ones_and_are_not_compared(cli: Cli) -> None:
    text = Page(drawn(cli, of_import(cli, BAD), of_import(cli, GOOD))).text
    assert "Older:" not in text
    assert "two newest bundles" not in text


def test_the_same_bytes_at_another_path_are_the_same_subject(cli: Cli) -> None:
    shutil.copyfile(BAD, "copy.safetensors")
    assert "Older:" in Page(drawn(cli, of_import(cli, BAD), of_import(cli, Path("copy.safetensors")))).text


def test_the_head_each_card_and_each_bundle_say_what_was_checked_against_what(cli: Cli) -> None:
    text = Page(drawn(cli, of_import(cli, BAD))).text
    checked = r"source=…/source\.safetensors, import=…/relabelled\.safetensors, policy lossless"
    assert len(re.findall(checked, text)) == 4  # head, card, table, bundle
    assert re.search(rf"checkpoint-import checked {checked}", text)


def test_a_sentence_stands_once_and_else_the_gate_with_a_link_to_it(cli: Cli) -> None:
    page = Page(drawn(cli, of_import(cli, BAD)))
    assert page.text.count("wrong dtype") == 1
    targets = {one["id"] for _, one in page.elements if "id" in one}
    assert "see Is every tensor its source's?" in page.text
    assert {one["href"][1:] for one in page.all("a")} <= targets


def test_a_tab_without_gates_and_data_is_a_name_in_one_line_and_a_checkpoint_alone_has_no_source(cli: Cli) -> None:
    page = Page(drawn(cli, sealed(cli, "builtin:checkpoint-health", "--subject", f"checkpoint={GOOD}")))
    assert [one["id"] for one in page.all("section")] == ["board", "sound"]
    assert "Are the tensors sound?" in page.text
    assert "Not asked here: Is it training?" in page.text
    assert "in 1 files" not in page.text


def test_a_run_with_a_nan_is_equal_to_itself(cli: Cli, tmp_path: Path) -> None:
    steps = recorded(tmp_path / "run") / "steps.jsonl"
    rows = [json.loads(line) for line in steps.read_text().splitlines()]
    rows[7]["loss"] = math.nan
    steps.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    bundle = sealed(cli, "builtin:training-log", "--subject", f"run={tmp_path / 'run'}")
    text = drawn(cli, bundle, "--run", tmp_path / "run", "--base", tmp_path / "run")
    assert "loss: equal to the earlier run, run, to the bit at every step that both have." in text
    assert re.search(r"The same throughout: \w+[^.]*\bloss\b", text)


def test_layers_are_drawn_of_the_sealed_run_and_the_dead_one_is_named(cli: Cli, tmp_path: Path) -> None:
    bundle, rows = of_run(cli, tmp_path / "run"), []
    for step in range(0, 120, 10):
        for layer in range(4):
            norm = 0.0 if layer == 2 else 0.1 / (1 + layer)
            rows.append({"step": step, "name": f"blocks.{layer}.w", "grad": norm, "weight": 1.0, "update": norm / 100})
    rows.append({"step": 0, "name": "blocks.3.b", "weight": 1.0, "update": 0.0})  # none at all
    layers = tmp_path / "run" / "layers.jsonl"
    layers.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    text = drawn(cli, bundle, "--run", tmp_path / "run", "--base", tmp_path / "run")
    without = "without a gradient at {} of 12 recorded steps"
    assert f"blocks.2 is {without.format(12)}; blocks.3.b is {without.format(1)}." in text
    assert (
        "From layers.jsonl of --run, which no bundle seals: the gates above read columns of steps.jsonl instead."
        in text
    )
    assert "loss: equal to the earlier run, run, to the bit at every step that both have." in text
    layers.write_text("".join(f"{json.dumps({**row, 'grad': math.nan})}\n" for row in rows))
    text = drawn(cli, bundle, "--run", tmp_path / "run")
    assert "Every tensor has a gradient at every recorded step. Some of them are no numbers." in text
    layers.write_text("{}\n")
    assert cli("report", bundle, "--run", tmp_path / "run").code == 4


def diagnosed(cli: Cli, folder: Path, inside: list[dict[str, object]]) -> str:
    """Draw a run whose loss spikes at step 120, layers and a look inside beside it."""
    losses = [5.5 * math.exp(-step / 90) + 0.01 * (step % 3) for step in range(150)]
    seen = ("least_head_entropy",) if inside else ()
    rows: list[dict[str, object]] = [
        {"step": step, "loss": loss, **dict.fromkeys(seen, loss / 10)} for step, loss in enumerate(losses)
    ]
    rows[120] |= {"loss": 30.0}
    norms = [{"step": step, "name": f"h.{layer}.w", "grad": 0.1, "weight": 2.0, "update": layer / 100}
             for step in range(0, 150, 5) for layer in range(3)]  # fmt: skip
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"schema": "weighbridge.run/v0"}))
    files = {"steps.jsonl": rows, "layers.jsonl": norms, "diagnostics.jsonl": inside}
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return drawn(cli, sealed(cli, "builtin:diagnostics", "--subject", f"run={folder}"), "--run", folder)


def test_the_step_that_a_gate_names_is_shown_before_at_and_after_with_what_changed_most(
    cli: Cli, tmp_path: Path
) -> None:
    text = diagnosed(cli, tmp_path / "run", [])
    assert "Step 120 is the first that one names; farthest from before it: loss." in text
    table = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", text.partition("Every column at step 120")[2]))
    assert re.search(r"loss 1\.6\d* 1\.\d+ 30 1\.\d+ 1\.\d+ 1\d\.\d+", table)
    assert "loss, 30 steps before and after, from --run. FAIL GATE-DIAG-4.1" in text
    captions = re.findall(r"<figcaption><bdi>(.*?)</bdi>", text, re.DOTALL)
    (movement,) = [one for one in captions if one.startswith("How far each tensor went")]
    assert "3 of 3 tensors" in movement
    assert re.search(r"(PASS|FAIL|BLOCKED) GATE-DIAG-2.6, (PASS|FAIL|BLOCKED) GATE-DIAG-3.4\.", movement)
    assert "h.0.w" in text.partition("ranking of movement")[2]
    assert "exactly 0, did not move" in text


def test_what_was_seen_inside_is_drawn_by_place_and_step_and_without_it_there_is_no_tab(
    cli: Cli, tmp_path: Path
) -> None:
    rows: list[dict[str, object]] = [
        {"step": step, "of": "attention", "name": "h.0.attn", "entropy": [0.5, None, 0.1]} for step in (0, 50, 100)
    ]
    rows += [{"step": 50, "of": "class", "name": "<b>1", "mean": 2.5, "count": 3}]
    rows += [{"step": 50, "of": "attention", "why": "no layer was seen"}]
    text = diagnosed(cli, tmp_path / "run", rows)
    entropies = r"Entropy of each head over ln of its keys, from diagnostics.jsonl of --run. \w+ GATE-DIAG-2.5\."
    assert re.search(entropies, text)
    assert "Loss by class, from diagnostics.jsonl of --run. Not judged: no gate reads it." in text
    shown = re.findall(r'data-h="([^"]*)"', text)
    entropy = next(one for one in map(json.loads, map(html.unescape, shown)) if one["n"][0].startswith("h.0.attn"))
    assert (entropy["n"], entropy["x"]) == (["h.0.attn 0", "h.0.attn 2"], [0, 50, 100])
    assert "<b>1" not in text
    assert 'id="insides"' not in diagnosed(cli, tmp_path / "other", [])
    (tmp_path / "other" / "diagnostics.jsonl").write_text("[]\n")
    refused = cli("report", *Path(".weighbridge/bundles").glob("*"), "--run", tmp_path / "other")
    assert (refused.code, "diagnostics.jsonl: layer-rows holds no row" in refused.err) == (4, True)


def test_a_picture_names_gate_bundle_and_measurement_or_says_that_no_gate_reads_it(cli: Cli, tmp_path: Path) -> None:
    bundle = of_run(cli, tmp_path / "run")
    captions = re.findall(r"<figcaption><bdi>(.*?)</bdi>", drawn(cli, bundle), re.DOTALL)
    for caption in captions:
        assert "Not judged: no gate reads it." in caption or re.search(r"PASS GATE-.*Bundle \w{12}\.", caption)
    assert {caption.partition(":")[0] for caption in captions} >= {"loss", "lr", "grad_norm"}


def test_a_column_is_judged_by_the_gates_that_looked_at_it_each_with_its_own_outcome(cli: Cli, tmp_path: Path) -> None:
    page = drawn(cli, sealed(cli, "builtin:training-run", "--subject", f"run={recorded(tmp_path / 'run')}"))
    judging = re.findall(r"<td>((?:PASS|FAIL|BLOCKED) GATE[^<]*)</td>", page)
    unmeant = set(re.findall(r"NOT APPLICABLE</span> <a[^>]*>([^<]+)</a>", page))
    assert judging
    assert "GATE-RUN-HELD-OUT" in unmeant
    assert not any(gate in cell for cell in judging for gate in unmeant)


def test_names_from_outside_come_out_as_text(cli: Cli) -> None:
    title = "</script><img src=x onerror=alert(1)><svg onload=alert(1)> \u202egnp.exe " + "long " * 2000
    contract = yaml.safe_load(cli("show", "builtin:checkpoint-import").out)
    contract["id"] = "hostile"
    contract["gates"][0]["title"] = title
    Path("hostile.yaml").write_text(json.dumps(contract))
    text = drawn(cli, sealed(cli, "hostile.yaml", "--subject", f"source={SOURCE}", "--subject", f"import={BAD}"))
    page = Page(text)
    assert page.all("img") == []
    assert not [one for _, one in page.elements if any(key.startswith("on") for key in one)]
    assert "</script><img src=x onerror=alert(1)>" in page.text
    assert "\u202e" not in text
    assert page.text.count("long " * 1999) >= 1


def test_without_jinja2_the_verb_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = of_import(cli, GOOD)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    ended = cli("report", bundle)
    assert (ended.code, Path("report.html").exists()) == (2, False)
    assert "pip install 'weighbridge[report]'" in ended.err


def test_what_assistive_technology_needs_is_there(cli: Cli, tmp_path: Path) -> None:
    page = Page(drawn(cli, of_run(cli, tmp_path / "run"), of_import(cli, BAD)))
    assert page.all("html")[0]["lang"] == "en"
    assert all(one["role"] == "img" and one["aria-label"] for one in page.all("svg"))
    targets = {one["id"] for one in page.all("section")}
    assert [one["href"][1:] for one in page.all("a")[: len(targets)]] == [one["id"] for one in page.all("section")]
    assert {one["aria-labelledby"] for one in page.all("section")} == {f"tab-{name}" for name in targets}
    assert all(one.get("scope") == "col" for one in page.all("th"))
    assert [one["role"] for one in page.all("div") if one.get("aria-live")] == ["status"]
    for sign in ("✓", "✗"):
        assert sign in page.text


@pytest.mark.parametrize("theme", [r":root\{(.*?)\}", r":root\[data-theme=dark\]\{(.*?)\}"])
def test_every_colour_of_text_has_a_contrast_of_four_and_a_half(theme: str) -> None:
    (body,) = re.findall(theme, STYLE)[:1]
    colours = dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", body))

    def light(colour: str) -> float:
        digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for ink in ("fg", "dim", "a", "b", "pass", "fail", "block", "nan"):
        for paper in ("bg", "card"):
            low, high = sorted((light(colours[ink]), light(colours[paper])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, paper)


def test_not_a_number_exactly_zero_and_missing_are_three_signs() -> None:
    steps = list(range(10))
    numbers = [1.0, 2.0, None, 2.0, 0.0, 3.0, None, 2.0, 1.0, 2.0]
    counts = {"nan": [2], "zeros": [4], "missing": [6]}
    marks = {name: [int(step in at) for step in steps] for name, at in counts.items()}
    text = curves("loss", "", [Line(name="loss", step=steps, least=numbers, **marks)])
    assert re.findall(r'class="sign (\w+)" fill="#\w+"><title>([^<]*)</title>', text) == [
        ("nan", "not finite"), ("zeros", "exactly 0"), ("missing", "missing"),
    ]  # fmt: skip
    assert [text.count(sign) for sign in "✕○▁"] == [1, 1, 1]
    data = json.loads(re.findall(r'data-x="(.*?)"', text)[0].replace("&quot;", '"'))
    assert data["s"][0]["v"][2::4] == ["not finite", "missing"]


def test_a_spike_of_one_step_reaches_the_top_of_the_picture() -> None:
    many = 800
    line = Line(name="loss", step=[1250 * at for at in range(many)], least=[1.0] * many, median=[1.5] * many,
                greatest=[9.0 if at == 523 else 2.0 for at in range(many)])  # fmt: skip
    text = curves("loss", "", [line], [Mark("hit", "GATE-SPIKE", 1250 * 523)])
    (band,) = re.findall(r'class="band"[^>]* d="M(.*?)z"', text)
    heights = [float(point.split()[1]) for point in band.split("L")]
    assert min(heights) < 45 < sorted(heights)[1]
    assert "GATE-SPIKE" in text


def test_a_heatmap_has_colours_of_their_own_for_the_three_signs() -> None:
    text = heatmap("norms", ["a", "b"], [0, 1, 2], [[1.0, 0.0, math.nan], [None, 10.0, math.inf]])
    data = base64.b64decode(re.findall(r"base64,([^\"]*)", text)[0])
    chunks, at = {}, 8
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        chunks[kind] = data[at + 8 : at + 8 + size]
        assert zlib.crc32(kind + chunks[kind]) == struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0]
        at += 12 + size
    assert struct.unpack(">IIB", chunks[b"IHDR"][:9]) == (3, 2, 8)
    assert len(chunks[b"PLTE"]) == 3 * 67
    assert zlib.decompress(chunks[b"IDAT"]) == bytes([0, 0, 64, 65, 0, 66, 63, 65])


def test_a_bundle_shows_hints_by_what_they_are_and_what_each_finding_looked_at(cli: Cli, tmp_path: Path) -> None:
    shown = json.loads(cli("evidence", "show", of_import(cli, BAD), "--json").out)
    (finding,) = shown["findings"]
    assert finding["hints"].keys() == {"cause", "knob", "look"}
    assert finding["hints"]["cause"][0].startswith("bf16-bits-as-f16: ")
    assert finding["looked_at"]["places"] == [offence["place"] for offence in finding["offences"]]
    (loss,) = (
        one["looked_at"]
        for one in json.loads(cli("evidence", "show", of_run(cli, tmp_path / "run"), "--json").out)["findings"]
        if one["kind"] == "loss-spike"
    )
    assert loss == {"column": "loss", "from_step": 100, "to_step": 119, "places": ["loss"]}


@pytest.mark.parametrize(
    "numbers", [[1e308, -1e308], [5e-324, 1e-310], [0.0, 0.0], [None, None], [1e-320, 1e308], [7.0], []]
)
def test_numbers_at_the_ends_of_what_there_is_are_drawn(numbers: list[float | None]) -> None:
    text = curves(
        "x", "", [Line(name="x", step=list(range(len(numbers))), least=numbers)], [Mark("limit", "far", 1e300)]
    )
    text += bars("x", [(str(at), value, value, "") for at, value in enumerate(numbers)])
    text += heatmap("x", ["x"], list(range(len(numbers))), [numbers]) if numbers else ""
    assert not re.search(r'="[^"]*\b(nan|inf)\b[^"]*"', re.sub(r'data-\w="[^"]*"', "", text))


def test_a_course_that_an_older_bundle_did_not_seal_is_drawn_of_its_run_with_the_gates_that_read_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.page.sources.Sources.courses", lambda self: (courses_of(self.run), self.run_of))
    text = drawn(cli, of_run(cli, tmp_path / "run"), "--run", tmp_path / "run")
    assert re.search(r"<figcaption><bdi>loss: 120 rows\. \w+ GATE-", text)


def test_where_two_sides_part_is_said_above_the_picture_with_the_limit_of_that_point_alone(
    cli: Cli, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    models = data_path("verifiers") / "specimens" / "models" / "tiny_gpt.py"
    (tmp_path / "scaled.py").write_text(
        f"import sys; sys.path.insert(0, {str(models.parent)!r})\n"
        "from tiny_gpt import Attention, FusedNorm, TinyGPT, forward, seeded\n"
        "def candidate():\n"
        "    module = seeded(TinyGPT(Attention, FusedNorm))\n"
        "    module.layers[1].attn.q.register_forward_hook(lambda _module, _inputs, out: out * 1.01)\n"
        "    return forward(module)\n"
    )
    sides = ("--subject", f"reference={models}:reference", "--subject", f"candidate={tmp_path}/scaled.py:candidate")
    page = Page(drawn(cli, sealed(cli, "builtin:forward-parity", "--gate", "GATE-PARITY-001", *sides)))
    (first,) = re.findall(r"Of 1 gate: 1 failed\. First at (\S+): error \d\S*, limit \d\S*\. ", page.text)
    assert re.search(re.escape(first[-33:]) + r" \d\S*, first point that parts, its limit \d", page.text)


def test_a_card_points_to_the_tab_that_asks_its_question(cli: Cli, tmp_path: Path) -> None:
    run = recorded(tmp_path / "run")
    rows = [json.loads(line) | {"zero_gradients": 12} for line in (run / "steps.jsonl").read_text().splitlines()]
    (run / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    layer = {"step": 0, "name": "a.weight", "grad": 0.0, "grad_used": 0.0, "weight": 1.0, "update": 0.0}
    (run / "layers.jsonl").write_text(json.dumps(layer) + "\n")
    bundle = sealed(cli, "builtin:training-run", "--gate", "GATE-RUN-DEAD", "--subject", f"run={run}")
    text = Page(drawn(cli, bundle, "--run", run)).text
    assert "see Do gradients reach every layer?" in text
    assert "see Is it training?" not in text
