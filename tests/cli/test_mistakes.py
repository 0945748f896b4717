"""What is typed wrongly at first contact, and what is said of it: what it is, where, and what to type instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.verifiers.logs_of_others import trainer_state

from weighbridge.core import SubjectKind
from weighbridge.core.data import data_path
from weighbridge.evaluation.inspection import kind_of

SPECIMENS = data_path("verifiers") / "specimens"
RUN, WEIGHTS = SPECIMENS / "runs" / "wrapped", SPECIMENS / "checkpoints" / "source.safetensors"
CONTRACT = (data_path("contracts") / "model-import.yaml").read_text()


@pytest.fixture
def here(workplace: Path) -> Path:
    trainer_state(workplace / "trainer_state.json")
    (workplace / "hf").mkdir()
    (workplace / "hf" / "model.safetensors").write_bytes(WEIGHTS.read_bytes())
    (workplace / "hf" / "config.json").write_text('{"model_type": "llama"}')
    (workplace / "mine").mkdir()
    (workplace / "mine" / "c.yaml").write_text(CONTRACT)
    return workplace


def test_lint_without_a_contract_of_ones_own_is_not_green(cli: Cli, workplace: Path) -> None:
    ended = cli("lint")
    assert (ended.code, ended.lines) == (5, ["9 of 9 contracts that ship with weighbridge are usable"])
    assert ended.err.startswith("no contract of yours was checked: contracts/ holds none; ")
    assert ended.err.endswith("write one: weighbridge init\n")


@pytest.mark.parametrize("title", ['""', '" "'])
def test_a_title_that_says_nothing_is_refused_of_a_contract_and_of_a_gate(
    cli: Cli, workplace: Path, title: str
) -> None:
    titles = [line for line in CONTRACT.splitlines() if line.lstrip().startswith("title: ")]
    assert len(titles) == 3
    for line in titles:
        (workplace / "c.yaml").write_text(CONTRACT.replace(line, f"{line.partition('title:')[0]}title: {title}"))
        ended = cli("lint", "c.yaml")
        assert (ended.code, "is not one sentence" in ended.err) == (2, True), ended.err


def test_lint_names_the_folder_of_another_name_that_holds_contracts(cli: Cli, here: Path) -> None:
    assert cli("lint").err.endswith("name the folder: weighbridge lint mine\n")
    assert cli("lint", "mine").lines == ["1 of 1 contract is usable"]
    (here / "mine" / "c.yaml").write_text("weighbridge: contract/v0\nid: [")
    assert cli("lint", "mine").code == 2


@pytest.mark.parametrize(
    ("named", "typed"),
    [
        ("trainer_state.json", "builtin:training-log --subject run="),
        (str(RUN), "builtin:training-log --subject run="),
        ("hf", "builtin:checkpoint-health --subject checkpoint="),
        ("hf/model.safetensors", "builtin:checkpoint-health --subject checkpoint="),
    ],
)
@pytest.mark.parametrize("verb", ["verify", "lint"])
def test_a_subject_in_the_place_of_a_contract_is_reported_with_what_to_type(
    cli: Cli, here: Path, verb: str, named: str, typed: str
) -> None:
    ended = cli(verb, named)
    printed = f"  a contract comes first: weighbridge verify {typed}{named}; `weighbridge inspect {named}` needs none"
    assert (ended.code, ended.err.splitlines()[1]) == (2, printed)
    ran = cli("verify", *f"{typed}{named}".split())
    assert ran.lines[-1].endswith(("(passed)", "(failed)", "(blocked)")), ran.out


@pytest.mark.parametrize("verb", ["verify", "lint"])
def test_a_url_is_no_contract_and_is_reported_as_it_was_typed(cli: Cli, verb: str) -> None:
    ended = cli(verb, "https://example.org/c.yaml")
    assert (ended.code, ended.err.startswith("https://example.org/c.yaml: no-contract ")) == (2, True)


@pytest.mark.parametrize("held", [None, "a: [", "plain"])
def test_a_folder_without_contracts_is_reported(cli: Cli, workplace: Path, held: str | None) -> None:
    (workplace / "empty").mkdir()
    if held:
        (workplace / "empty" / "x.yaml").write_text(held)
    assert cli("lint", "empty").err.splitlines() == [
        "empty: no-contract no .yaml file in it is a contract",
        "  write one: weighbridge init",
    ]
    ended = cli("verify", "--subject", "run=x")
    assert (ended.code, ended.err.splitlines()[0]) == (
        2,
        "no-contracts no contract was named, and contracts/ holds none",
    )


def test_contracts_of_the_folder_above_are_named(cli: Cli, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "mine").rename(here / "contracts")
    (here / "sub").mkdir()
    monkeypatch.chdir(here / "sub")
    assert cli("verify", "--subject", "run=x").err.splitlines()[1] == (
        "  name the folder: weighbridge verify ../contracts"
    )
    assert cli("lint").err.endswith("name the folder: weighbridge lint ../contracts\n")


@pytest.mark.parametrize("verb", ["lint", "verify"])
@pytest.mark.parametrize(("name", "text"), [("mk.py", "import os\nprint(os)\n"), ("config.json", "{}")])
def test_what_no_contract_judges_is_not_proposed_as_one(
    cli: Cli, workplace: Path, verb: str, name: str, text: str
) -> None:
    (workplace / name).write_text(text)
    assert cli(verb, name).err.splitlines() == [
        f"{name}: no-contract this is no contract",
        "  name one, or builtin:NAME",
    ]


@pytest.mark.parametrize("verb", ["lint", "verify", "show"])
def test_a_shipped_contract_without_builtin_is_named_with_it(cli: Cli, verb: str) -> None:
    ended = cli(verb, "training-log")
    printed = "training-log: file-missing no such file; did you mean builtin:training-log?"
    assert (ended.code, ended.err.splitlines()[0]) == (2, printed)


def test_a_blank_beside_the_equals_sign_of_a_subject_is_reported(cli: Cli, here: Path) -> None:
    ended = cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint", "=", "hf")
    assert (ended.code, ended.err.splitlines()[0]) == (2, "subject-form there is a blank before =")


@pytest.mark.parametrize(
    ("named", "printed"),
    [
        ("hf/config.json", "describes a model, and holds no weights (checkpoint-format)"),
        ("trainer_state.json", "is the log of a Trainer, and holds no weights (checkpoint-format)"),
        ("hf/generation_config.json", "is a JSON document that holds no tensors (checkpoint-format)"),
    ],
)
def test_json_that_holds_no_weights_is_reported_for_what_it_is(cli: Cli, here: Path, named: str, printed: str) -> None:
    Path("hf/generation_config.json").write_text('{"bos_token_id": 1}')
    Path(named).write_text(Path(named).read_text().replace("{", '{"loss": NaN, ', 1))  # as some are
    ended = cli("compare", named, WEIGHTS)
    assert (ended.code, f"  {named}: {printed}" in ended.lines) == (4, True)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_what_is_inspected_of_a_model_without_weights_is_what_compare_says(cli: Cli, here: Path, name: str) -> None:
    (here / "hf" / "generation_config.json").write_text('{"bos_token_id": 1}')
    ended = cli("inspect", f"hf/{name}")
    assert (ended.code, ended.err.startswith(f"hf/{name}: checkpoint-format ")) == (4, True)
    assert ended.err.endswith("the folder that it lies in\n")


def test_two_logs_that_are_compared_are_sent_to_inspect(cli: Cli, here: Path) -> None:
    (here / "other").mkdir()
    trainer_state(here / "other" / "trainer_state.json")
    ended = cli("compare", "trainer_state.json", "other/trainer_state.json")
    both = "trainer_state.json other/trainer_state.json"
    assert (ended.code, ended.lines[-1]) == (4, f"two logs are compared by: weighbridge inspect {both}")
    assert "  `weighbridge inspect trainer_state.json` shows it" in ended.lines
    assert cli("inspect", *both.split()).code == 0
    assert "two logs" not in cli("compare", "trainer_state.json", WEIGHTS).out


def test_a_json_log_that_is_cut_off_is_reported_as_that(cli: Cli, here: Path) -> None:
    whole = json.dumps(json.loads(Path("trainer_state.json").read_text()), indent=2)
    for until in (whole.index('"loss"'), whole.index('"loss"') + 3, whole.rindex(",") + 1):
        Path("cut.json").write_text(whole[:until])
        ended = cli("inspect", "cut.json")
        first, second = ended.err.splitlines()
        assert (ended.code, first.partition(": ")[2]) == (4, "log-syntax one JSON document, cut off here")
        assert second == "  write or fetch it whole"
    Path("wrong.json").write_text(whole.replace('"loss":', '"loss"', 1))
    assert "log-syntax not a row of JSON" in cli("inspect", "wrong.json").err


@pytest.mark.parametrize("words", [("inspect", "closed"), ("verify", "closed"), ("lint", "closed")])
def test_a_folder_that_may_not_be_listed_is_named(
    cli: Cli, here: Path, as_anybody: None, words: tuple[str, ...]
) -> None:
    (here / "hf").rename(here / "closed")
    (here / "closed").chmod(0)
    ended = cli(*words)
    assert (ended.code, ended.err.splitlines()) == (
        4,
        ["closed: file-unreadable cannot be opened: Permission denied", "  make it readable for this user"],
    )
    (here / "closed").chmod(0o755)


def test_a_folder_that_may_not_be_listed_is_not_one_without_weights(cli: Cli, here: Path, as_anybody: None) -> None:
    (here / "up" / "closed").mkdir(parents=True)
    for closed, code in (("hf", "file-unreadable"), ("up/closed", "folder-unreadable")):
        (here / closed).chmod(0)
        name = closed.partition("/")[0]
        ended = cli("compare", WEIGHTS, name)
        assert (ended.code, ended.lines[-1].split(": ")[:2]) == (4, ["UNREADABLE", code])
        ended = cli("verify", "builtin:checkpoint-health", "--subject", f"checkpoint={name}", "--no-evidence")
        assert (ended.code, f"({code})" in ended.out, "no .safetensors file" in ended.out) == (4, True, False)
        (here / closed).chmod(0o755)
    (here / "hf").chmod(0)
    ended = cli("verify", "builtin:training-log", "--subject", "run=hf", "--no-evidence")
    assert (ended.code, "(file-unreadable)" in ended.out) == (4, True)
    (here / "hf").chmod(0o755)


def test_an_empty_folder_is_reported_as_that(cli: Cli, workplace: Path) -> None:
    (workplace / "empty").mkdir()
    assert cli("inspect", "empty").err.startswith("empty: checkpoint-none no file lies in this folder\n")


@pytest.mark.parametrize(
    ("option", "code"),
    [
        (("--map", "hf"), "hf: file-kind a directory, not a regular file"),
        (("--map", "m.yaml"), "m.yaml: file-missing no such file"),
        (("--policy", "limits.yaml"), "limits.yaml: file-missing no such file"),
    ],
)
def test_a_file_of_an_option_that_cannot_be_read_is_reported_with_what_to_do(
    cli: Cli, here: Path, option: tuple[str, ...], code: str
) -> None:
    ended = cli("compare", WEIGHTS, WEIGHTS, *option)
    first, second = ended.err.splitlines()
    assert (ended.code, first, second) == (
        2,
        code,
        f"  {'check the path' if 'no such' in code else 'give a regular file'}",
    )


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "org/model", WEIGHTS),
        ("inspect", "org/model"),
        ("verify", "builtin:checkpoint-health", "--subject", "checkpoint=org/model"),
    ],
)
def test_a_name_of_two_words_may_be_one_of_the_hub(cli: Cli, workplace: Path, words: tuple[object, ...]) -> None:
    ended = cli(*words)
    hub = "check the path; a repository of the Hugging Face hub is named hf://org/model"
    assert (ended.code, hub in ended.out + ended.err) == (4, True)
    (workplace / "org").mkdir()
    assert "hf://" not in cli(*words).out


@pytest.mark.parametrize(
    ("words", "lacking"), [(("compare",), "SOURCE"), (("compare", "a"), "IMPORTS..."), (("amend", "land"), "FILE")]
)
def test_a_missing_argument_is_reported_as_everything_is(cli: Cli, words: tuple[str, ...], lacking: str) -> None:
    ended = cli(*words)
    first, second = ended.err.splitlines()
    assert (ended.code, first) == (2, f"missing-argument {lacking} is missing")
    assert second.startswith(f"  write: weighbridge {' '.join(words[:1])}")


@pytest.mark.parametrize("verb", ["verify", "show", "rejudge"])
def test_a_bundle_that_is_not_there_is_reported_with_where_bundles_are(cli: Cli, verb: str) -> None:
    first, second = cli("evidence", verb, "missing").err.splitlines()
    assert first == "missing: not-a-bundle there is no such folder or archive"
    assert second.startswith("  name a bundle's folder: `verify` writes them to .weighbridge/bundles")


def test_a_folder_of_bundles_is_told_from_a_bundle(cli: Cli, workplace: Path) -> None:
    cli("verify", "builtin:checkpoint-health", "--subject", f"checkpoint={WEIGHTS}")
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    assert cli("evidence", "verify", ".weighbridge/bundles").err.splitlines() == [
        ".weighbridge/bundles: not-a-bundle there is no statement.json in it; bundles lie in it",
        f"  name one of them, such as .weighbridge/bundles/{bundle.name}",
    ]
    (bundle / "verdicts.json").write_text("{}")
    printed = cli("evidence", "verify", bundle).out
    assert printed.count("verdicts.json: ") == 1


@pytest.mark.parametrize(
    ("report", "printed"),
    [
        ("junit", "report-form 'junit' names no file"),
        ("junti:x", "report-form 'junti:x' names no report; did you mean 'junit'?"),
        ("junit:hf", "report-form hf is a folder"),
    ],
)
def test_a_report_of_the_wrong_form_is_reported(cli: Cli, here: Path, report: str, printed: str) -> None:
    ended = cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint=hf", "--report", report)
    assert (ended.code, ended.err.splitlines()[0], ended.out) == (2, printed, "")


def test_a_report_that_cannot_be_written_is_reported_before_anything_is_measured(
    cli: Cli, here: Path, as_anybody: None
) -> None:
    (here / "shut").mkdir(mode=0o555)
    ended = cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint=hf", "--report", "junit:shut/out.xml")
    assert (ended.code, ended.out) == (4, "")
    assert ended.err.startswith("shut/out.xml: disk the report was not written: Permission denied (EACCES)\n")


def test_a_lane_of_no_project_is_not_told_to_be_in_it(cli: Cli, here: Path) -> None:
    ended = cli("verify", "builtin:checkpoint-health", "--subject", "checkpoint=hf", "--lane", "gpu")
    assert (ended.code, ended.err.splitlines()[0]) == (2, "weighbridge.toml: file-missing no such file")


def test_a_parameter_that_does_not_fit_is_reported_where_it_was_typed(cli: Cli) -> None:
    ended = cli("verify", "builtin:training-run", "--subject", f"run={RUN}", "--param", "budget_ms=-5")
    assert (ended.code, ended.err) == (2, "--param budget_ms=-5: out-of-bounds -5.0 is not > 0\n")


def test_a_log_of_another_trainer_names_the_contract_that_reads_it(cli: Cli, here: Path) -> None:
    printed = cli("verify", "builtin:training-run", "--subject", "run=trainer_state.json", "--no-evidence").lines
    assert (
        "    record the run with weighbridge.recorder; a log of another trainer is for builtin:training-log" in printed
    )


def test_a_missing_colon_is_named_at_its_own_line(cli: Cli, workplace: Path) -> None:
    (workplace / "c.yaml").write_text(CONTRACT.replace("owner: ", "owner "))
    at = 1 + CONTRACT.splitlines().index(next(line for line in CONTRACT.splitlines() if line.startswith("owner: ")))
    assert cli("lint", "c.yaml").err.startswith(f"c.yaml:{at}:1: yaml-syntax ")


def test_a_stretch_of_zeros_in_a_log_is_first_of_all_a_sign_of_nan(cli: Cli, here: Path) -> None:
    state = json.loads(Path("trainer_state.json").read_text())
    for row in state["log_history"][40:80]:
        row |= {"loss": 0.0, "grad_norm": float("nan")}
    Path("nan.json").write_text(json.dumps(state))
    printed = cli("verify", "builtin:training-log", "--subject", "run=nan.json", "--no-evidence").lines
    cause = next(line for line in printed if "likely cause: " in line)
    assert cause.startswith("    likely cause: a logger that writes a number in the place of NaN, a data iterator")


def test_a_log_that_says_why_it_is_short_is_quoted(cli: Cli, here: Path) -> None:
    state = json.loads(Path("trainer_state.json").read_text())
    rows = [row | {"step": 30} for row in state["log_history"][-2:]]
    state |= {"logging_steps": 500, "max_steps": 30, "global_step": 30, "log_history": rows}
    Path("few.json").write_text(json.dumps(state))
    printed = cli("verify", "builtin:training-log", "--subject", "run=few.json").lines
    assert "    likely cause: logging_steps is 500, so that most of 30 steps were not logged" in printed
    assert not any("an empty window" in line for line in printed)
    state["log_history"] = rows[:1]
    Path("one.json").write_text(json.dumps(state))
    printed = cli("verify", "builtin:training-run", "--subject", "run=one.json", "--no-evidence").lines
    why = "no fault could be tried on what was read: the log has one row, and two are needed"
    assert f"    the pass is not counted, for {why}" in printed


@pytest.mark.parametrize("verb", ["lint", "verify"])
def test_a_folder_of_two_logs_in_the_place_of_a_contract_is_told_what_to_bind(
    verb: str, cli: Cli, workplace: Path
) -> None:
    (workplace / "logs").mkdir()
    for name in "ab":
        (workplace / "logs" / f"{name}.jsonl").write_text('{"step": 0, "loss": 3.0}\n')
    assert kind_of("logs") is SubjectKind.RUN
    ended = cli(verb, "logs")
    judge = "weighbridge verify builtin:training-log --subject run=ONE"
    assert (ended.code, ended.err) == (
        2,
        f"logs: no-contract no contract, but 2 runs: a.jsonl, b.jsonl\n  a contract judges one of them: {judge}\n",
    )


def test_the_message_of_a_bare_log_leads_in_one_step_to_a_gate_that_judges_it(cli: Cli, workplace: Path) -> None:
    rows = ({"step": at, "loss": 4 * 0.97**at + 0.01 * (at * 7919 % 13)} for at in range(60))
    (workplace / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    copied = cli("explain", "learning-progress").out.partition("to copy into a contract\n")[2]
    head = "weighbridge: contract/v0\nid: mine\nversion: 1.0.0\ntitle: Mine\nowner: me\n"
    (workplace / "c.yaml").write_text(head + copied)
    ended = cli("verify", "c.yaml", "--subject", "run=log.jsonl", "--no-evidence")
    assert (ended.code, "write where: {as_logged: true} beside kind: in the gate" in ended.out) == (3, True), ended.out
    line = "    kind: learning-progress"
    (workplace / "c.yaml").write_text(head + copied.replace(line, f"{line}\n    where: {{as_logged: true}}"))
    assert cli("verify", "c.yaml", "--subject", "run=log.jsonl", "--no-evidence").code == 0


@pytest.mark.parametrize(
    ("first", "says"), [(4.0, "    likely cause: too high a learning rate, most"), (9.0, "    why ")]
)
def test_a_loss_that_leaves_chance_has_a_likely_cause_where_it_began_there(
    first: float, says: str, cli: Cli, workplace: Path
) -> None:
    rows = [{"step": at + 1, "loss": 900.25 + at * 7919 % 13 if at else first} for at in range(30)]
    (workplace / "trainer_state.json").write_text(json.dumps({"max_steps": 30, "global_step": 30, "log_history": rows}))
    (workplace / "config.json").write_text('{"architectures": ["GPT2LMHeadModel"], "vocab_size": 64}')
    judge = "verify", "builtin:training-log", "--subject", "run=trainer_state.json", "--no-evidence", "--gate"
    ended = cli(*judge, "GATE-LOG-FIRST")
    assert (ended.code, sum(line.startswith(says) for line in ended.lines)) == (1, 1), ended.out
    assert ("likely cause" in ended.out) == (first == 4.0)
    assert "a learning rate of zero or far too low (where the loss rose: far too high)" in cli(*judge, "*LEARNED").out


def test_a_loss_that_hardly_moves_may_be_of_a_rate_far_too_low(cli: Cli, workplace: Path) -> None:
    rows = ({"step": at, "loss": 4.0 + 0.01 * (at * 7919 % 13), "lr": 1e-9 * (1 + at)} for at in range(240))
    (workplace / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = cli("verify", "builtin:training-log", "--subject", "run=log.jsonl", "--gate", "GATE-LOG-LEARNED")
    assert (ended.code, "a learning rate of zero or far too low" in ended.out) == (1, True), ended.out


def test_a_log_that_lacks_its_end_is_not_all_the_steps_that_its_header_tells_of(cli: Cli, here: Path) -> None:
    state = json.loads((here / "trainer_state.json").read_text())
    state["log_history"] = state["log_history"][:60]
    (here / "cut.json").write_text(json.dumps(state))
    ended = cli("verify", "builtin:training-log", "--subject", "run=cut.json", "--verbose")
    assert "contradicted: 120 steps were taken, and no row is logged after step 60" in ended.out
    assert "FAIL     GATE-LOG-ENDED (advisory)" in ended.out
    assert "1 failed (1 as advice), " in ended.lines[-1]
    assert [cli("inspect", flag, "cut.json").code for flag in ("--strict", "--strict=all")] == [0, 1]


@pytest.mark.parametrize(("best", "code"), [(None, 1), (0.5, 0)])
def test_a_trainer_that_summed_up_early_has_ended_early_unless_it_kept_a_best_metric(
    cli: Cli, here: Path, best: float | None, code: int
) -> None:
    state = json.loads(trainer_state(here / "early.json", reached=60).read_text()) | {"best_metric": best}
    assert cli("inspect", "early.json", "--strict=all").code == 0  # as a checkpoint on the way has it
    state["log_history"].append({"step": 60, "total_flos": 0.0, "train_loss": 2.4, "train_runtime": 1.5})
    (here / "early.json").write_text(json.dumps(state))
    assert cli("inspect", "early.json", "--strict=all").code == code


def test_of_several_contracts_each_takes_the_parameters_that_it_has(cli: Cli, here: Path) -> None:
    both = ("verify", "builtin:training-run", "builtin:diagnostics", "--subject", f"run={RUN}")
    assert cli(*both, "--param", "device=cpu").code != 2
    ended = cli(*both, "--param", "devce=cpu")
    assert (ended.code, "'devce' is no parameter of this contract; did you mean 'device'?" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("from_60", "said"), [(1e-12, "condition is not met: PASS"), (0.0, "FAIL     GATE-RUN-USED  ")]
)
def test_zeros_in_the_place_of_the_gradients_that_arrived_fail_a_run(
    cli: Cli, here: Path, from_60: float, said: str
) -> None:
    rows = [{"step": at, "loss": 3 - at / 60, "grad_norm": 2 + at % 7 / 9} for at in range(120)]
    used = [row | {"grad_norm_used": row["grad_norm"] * (from_60 if row["step"] >= 60 else 1)} for row in rows]
    (here / "log.jsonl").write_text("\n".join(map(json.dumps, used)))
    ended = cli("verify", "builtin:training-run", "--gate", "GATE-RUN-USED", "--subject", "run=log.jsonl")
    assert said in ended.out
    assert ("0 times its grad_norm (2.44444) at step 60" in cli("inspect", "log.jsonl").out) is (from_60 == 0)
