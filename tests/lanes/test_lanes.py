"""Lanes: what a pull request accepts of last night, what it does not, and what a project may not leave open.

No GPU is needed: the nightly's gate judges a recorded run, in a git repository made for it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.books import typed, watched
from tests.cases import each
from tests.cli.conftest import Cli, cli
from tests.ledgers import git

from weighbridge.core.data import data_path
from weighbridge.core.errors import ContractError
from weighbridge.evaluation import lane_turn
from weighbridge.evidence.statement import Tool
from weighbridge.lanes.lanes import Lane, load_project

__all__ = ["cli"]

SPECIMENS = data_path("verifiers") / "specimens"
RUN = SPECIMENS / "runs" / "report.json"
SOURCE, IMPORT = (SPECIMENS / "checkpoints" / name for name in ("source.safetensors", "import.gguf"))
HEAD = "weighbridge: contract/v0\nversion: 1.0.0\nowner: me\n"
IMPORTS = f"""{HEAD}id: my-import
title: Our import keeps every dtype
subjects:
  source: {{kind: checkpoint}}
  import: {{kind: checkpoint}}
gates:
  - id: GATE-IMPORT-001
    title: Every tensor keeps its dtype, or is widened exactly
    why: BF16 bytes stored as F16 load without an error.
    kind: dtype-preservation
    subjects: {{source: source, candidate: import}}
    with: {{policy: lossless}}
"""
TRAINING = f"""{HEAD}id: my-training
title: A step stays within its budget
subjects:
  run: {{kind: run}}
gates:
  - id: GATE-GPUTRAIN-004
    title: The median step takes less than 500 ms
    why: A slow step was found a week later.
    kind: wall-time-budget
    subjects: {{run: run}}
    where: {{tokens_per_step: 8192}}
    with: {{statistic: median, steps: [20, 49], below_ms: 500, min_samples: 30}}
"""
GATES = """gates:
  - id: GATE-LOG-001
    title: Every logged step has its loss
    why: A run that diverged at night was found in the morning.
    kind: step-metrics
    subjects: {run: run}
    with: {required: [loss]}"""
LANES = """
[lanes.pull-request]
decides = ["GATE-IMPORT-*"]
paths = ["src/convert/**"]

[lanes.pull-request.accepts]
nightly = {max_age = "36h"}

[lanes.nightly]
decides = ["GATE-GPUTRAIN-*"]
paths = ["src/train/**"]
"""
NIGHTLY = ("verify", "--lane", "nightly", "--record", "--subject", f"run={RUN}")
PULL = ("verify", "--lane", "pull-request", "--subject", f"source={SOURCE}", "--subject", f"import={IMPORT}")


@pytest.fixture
def project(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a repository with two contracts and two lanes, and a tool without changes."""
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    for name, text in {
        "contracts/import.yaml": IMPORTS, "contracts/training.yaml": TRAINING, "weighbridge.toml": LANES,
        "src/convert/convert.py": "bits = 16\n", "src/train/train.py": "lr = 1\n", ".gitignore": ".weighbridge/\n",
    }.items():  # fmt: skip
        (workplace / name).parent.mkdir(parents=True, exist_ok=True)
        (workplace / name).write_text(text)
    git(workplace, "init", "-q")
    commit(workplace)
    return workplace


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "m")


@pytest.fixture
def night(project: Path, cli: Cli) -> Path:
    """Run the nightly lane, commit its evidence, and give its bundle."""
    assert cli(*NIGHTLY).code == 0
    commit(project)
    (bundle,) = (project / "evidence" / "bundles").iterdir()
    return bundle


def later(monkeypatch: pytest.MonkeyPatch, hours: float) -> None:
    class Later(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
            return dt.datetime.now(tz) + dt.timedelta(hours=hours)

    monkeypatch.setattr(lane_turn, "dt", SimpleNamespace(datetime=Later, UTC=dt.UTC))


def edit(path: Path, old: str, new: str) -> None:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


# --- The story: a pull request on a host without a GPU ----------------------------------------------------------------


@pytest.mark.slow
def test_last_nights_evidence_is_accepted_until_it_is_too_old_or_the_tree_is_another(
    cli: Cli, night: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = cli(*PULL, "--json")
    (project / "src" / "convert" / "convert.py").write_text("bits = 32\n")  # what the night does not depend on
    commit(project)
    accepted = cli(*PULL)
    assert accepted.code == 0
    assert any(line.startswith("PASS     GATE-GPUTRAIN-004  median of ") for line in accepted.lines)
    assert f"    by lane nightly: bundle {night.name[-12:]}, 0 minutes old, at most 36 hours" in accepted.lines
    assert "2 passed of 2 -> exit 0 (passed)" in accepted.lines
    assert [line for line in accepted.lines if "evidence: " in line and "my-training" in line] == []
    (_, training) = json.loads(alone.out)
    assert (training["bundle"], training["findings"][0]["elsewhere"][:15]) == ("", "by lane nightly")

    later(monkeypatch, 37)
    stale = cli(*PULL)
    assert stale.code == 3
    printed = f"    needs lane nightly: its bundle {night.name[-12:]} is 37 hours old, at most 36 hours is accepted"
    assert f"{printed} (lane-stale)" in stale.lines
    remedy = "    run it there, and bring its evidence here: weighbridge verify --lane nightly --record"
    assert remedy in stale.lines

    later(monkeypatch, 0)
    (project / "src" / "train" / "train.py").write_text("lr = 2\n")
    uncommitted = cli(*PULL)
    assert (
        uncommitted.code,
        "compared with src/train/**: changed since the commit: src/train/train.py" in uncommitted.out,
    ) == (3, True)
    commit(project)
    other = cli(*PULL)
    assert (other.code, "src/train/** is the tree" in other.out, "(lane-other-tree)" in other.out) == (3, True, True)
    (project / "src" / "train" / "train.py").write_text("lr = 1\n")
    commit(project)
    assert cli(*PULL).code == 0


@pytest.mark.slow
def test_a_fail_there_is_a_fail_here_and_the_newest_that_counts_decides(cli: Cli, night: Path, project: Path) -> None:
    slow = re.sub(r'("wall_ms": )([0-9.]+)', lambda match: f"{match[1]}{float(match[2]) * 2}", RUN.read_text())
    slow = re.sub(r'("tokens_per_sec": )([0-9.]+)', lambda match: f"{match[1]}{float(match[2]) / 2}", slow)
    (project / "slow.json").write_text(slow)
    assert cli(*NIGHTLY[:-1], "run=slow.json").code == 1
    (newest,) = set((project / "evidence" / "bundles").iterdir()) - {night}
    failed = cli(*PULL)
    assert (failed.code, f"by lane nightly: bundle {newest.name[-12:]}" in failed.out) == (1, True)
    assert "    steps 20..49: median of 30 samples is 531.906 ms, not below 500 ms" in failed.out
    edit(newest / "verdicts.json", "FAIL", "PASS")
    assert f"its bundle {newest.name[-12:]} cannot be believed" in cli(*PULL).out  # no older PASS stands in for it
    assert cli(*NIGHTLY).code == 0
    assert cli(*PULL).code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda project: shutil.rmtree(project / "evidence"), "lane-no-evidence"),
        (lambda project: edit(project / "contracts" / "training.yaml", "500", "400"), "lane-other-contract"),
        (lambda project: edit(project / "weighbridge.toml", "src/train/**", "src/**"), "lane-other-tree"),
        (lambda project: edit(next(project.glob("evidence/bundles/*/verdicts.json")), "PASS", "FAIL"), "lane-unproven"),
        (
            lambda project: edit(next(project.glob("evidence/bundles/*/environment.json")), "nightly", "weekly"),
            "lane-unproven",
        ),
    ],
)
def test_evidence_that_does_not_count_is_blocked_and_says_why(
    cli: Cli, night: Path, project: Path, change: object, code: str
) -> None:
    assert night.is_dir()
    change(project)  # type: ignore[operator]
    commit(project)
    ended = cli(*PULL)
    assert (ended.code, f"({code})" in ended.out) == (3, True), ended.out


@pytest.mark.slow
def test_evidence_of_another_instance_or_that_decided_nothing_does_not_count(cli: Cli, project: Path) -> None:
    assert cli("verify", "--lane", "nightly", "--evidence", "evidence").code == 3  # nothing was bound
    undecided = cli(*PULL)
    assert (undecided.code, "came to BLOCKED (unbound) there (lane-undecided)" in undecided.out) == (3, True)
    shutil.rmtree(project / "evidence")
    assert cli("verify", "--lane", "nightly", "--evidence", "evidence", "--subject", f"run@falcon={RUN}").code == 0
    other = cli(*PULL)
    printed = "needs lane nightly: it judged GATE-GPUTRAIN-004 on falcon, not on default (lane-other-instance)"
    assert (other.code, f"    {printed}" in other.lines) == (3, True)
    shutil.rmtree(project / "evidence")
    assert cli(*NIGHTLY[:-1], f"run@falcon={RUN}").code == 0  # recorded: the ledger knows the instance
    assert cli(*PULL).code == 0


@pytest.mark.slow
def test_what_no_lane_will_accept_and_what_is_of_another_lane_is_said_at_once(cli: Cli, project: Path) -> None:
    edit(project / "contracts" / "training.yaml", "gates:", GATES)
    edit(project / "weighbridge.toml", '["GATE-IMPORT-*"]', '["GATE-IMPORT-*", "GATE-LOG-*"]')
    (project / "src" / "train" / "new.py").touch()
    ended = cli(*NIGHTLY)
    assert "not of lane nightly: GATE-LOG-001" in ended.lines
    printed = "no lane will accept it: src/train/**, changed since the commit: src/train/new.py"
    assert (ended.code, printed in ended.lines) == (0, True)
    commit(project)
    accepted = cli(*PULL).out
    assert "says nothing of src/train/**: there a file was changed since the commit" in accepted
    assert "(lane-other-tree)" in accepted


@pytest.mark.parametrize("of", ["", "a" * 40])
def test_what_a_changed_tool_sealed_does_not_count(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    assert project.is_dir()
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0", commit=of, dirty=True))
    assert cli(*NIGHTLY).code == 0
    ended = cli(*PULL)
    assert (ended.code, "changes that no commit has (lane-unproven)" in ended.out) == (3, True)


def test_what_was_judged_with_another_parameter_does_not_count(cli: Cli, project: Path) -> None:
    training = project / "contracts" / "training.yaml"
    edit(training, "subjects:\n", "params:\n  b: {type: number, default: 500, unit: ms}\nsubjects:\n")
    edit(training, "below_ms: 500", 'below_ms: "${params.b}"')
    commit(project)
    assert cli(*NIGHTLY, "--param", "b=5000").code == 0
    other = cli(*PULL)
    printed = "was judged with other parameters: b (lane-other-contract)"
    assert (other.code, printed in other.out) == (3, True), other.out
    assert cli(*NIGHTLY).code == 0
    assert cli(*PULL).code == 0


def test_evidence_from_the_future_does_not_count(cli: Cli, night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, -1)
    ended = cli(*PULL)
    printed = f"its bundle {night.name[-12:]} is from the future"
    assert (ended.code, printed in ended.out, "(lane-unproven)" in ended.out) == (3, True, True), ended.out


def test_a_lane_decides_gates_of_its_own_contracts_alone(project: Path) -> None:
    edit(project / "weighbridge.toml", '["GATE-IMPORT-*"]', '["GATE-*"]\ncontracts = ["contracts/import.yaml"]')
    lanes = load_project()
    assert lanes.decider("pull-request", "my-import", "GATE-IMPORT-001") == "pull-request"
    assert lanes.decider("pull-request", "my-training", "GATE-GPUTRAIN-004") == "nightly"


LOGGED = """  - id: GATE-GPUTRAIN-005
    title: Every step has its loss
    kind: series-bound
    subjects: {run: run}
    measure: {column: loss}
    with: {at_most: 1.0e6}
"""


def test_the_age_is_that_of_the_run_and_not_of_its_evidence(cli: Cli, project: Path) -> None:
    edit(project / "contracts" / "training.yaml", TRAINING.partition("gates:\n")[2], LOGGED)
    shutil.copytree(SPECIMENS / "runs" / "wrapped", project / "old")  # it began on 2026-01-01
    edit(project / "old" / "run.json", '"commit": ""', f'"commit": "{"a" * 40}", "dirty": false')
    commit(project)
    ended = cli(*NIGHTLY[:-1], "run=old")
    assert ended.code == 0, ended.out
    stale = cli(*PULL)
    assert (stale.code, "days old, at most 36 hours is accepted (lane-stale)" in stale.out) == (3, True), stale.out


@pytest.mark.slow
@pytest.mark.parametrize(("of_gate", "of_lane"), [("1d", "90d"), ("90d", "24h"), ("90d", "1d")])
def test_the_smaller_of_two_ages_counts(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, of_gate: str, of_lane: str
) -> None:
    edit(project / "contracts" / "training.yaml", "    kind: wall", f"    max_age: {of_gate}\n    kind: wall")
    edit(project / "weighbridge.toml", "36h", of_lane)
    commit(project)
    assert cli(*NIGHTLY).code == 0
    later(monkeypatch, 20)
    assert cli(*PULL).code == 0
    later(monkeypatch, 30)
    stale = cli(*PULL)
    assert (stale.code, "is 30 hours old, at most 24 hours is accepted (lane-stale)" in stale.out) == (3, True)


def test_a_glob_of_gates_minds_letter_case() -> None:
    lane = Lane(decides=("GATE-GPUTRAIN-*", "gate-import-*"))
    assert lane.measures("GATE-GPUTRAIN-004")
    assert not lane.measures("GATE-IMPORT-001")
    assert not lane.measures("gate-gputrain-004")


# --- A gate that is not meant for what the night measured -------------------------------------------------------------

UNMEANT = """  - id: GATE-GPUTRAIN-005
    title: A run of 50 steps has its losses
    kind: step-metrics
    subjects: {run: run}
    when: {steps: 50}
    with: {required: [loss]}
"""


@pytest.fixture
def unmeant(project: Path, cli: Cli) -> Path:
    """Let the night record a gate that does not apply to its run, beside one that passes."""
    with (project / "contracts" / "training.yaml").open("a") as file:
        file.write(UNMEANT)
    commit(project)
    assert cli(*NIGHTLY).code == 0
    commit(project)
    return project


def test_what_does_not_apply_is_accepted_of_the_same_subject(cli: Cli, unmeant: Path) -> None:
    accepted = cli(*PULL)
    assert (accepted.code, "1 not applicable, 2 passed of 3 -> exit 0 (passed)" in accepted.lines) == (0, True)
    assert any(line.startswith("NOT_APPLICABLE GATE-GPUTRAIN-005 (by lane ") for line in accepted.lines)
    again = cli(*PULL, "--record", "--subject", f"run={RUN}")
    assert (again.code, "lane-other" in again.out) == (0, False)
    required = cli("status", "--require", "pull-request")
    printed = "lane pull-request: 1 not applicable, 2 passed of 3 -> exit 0 (passed)"
    assert (required.code, required.lines[-1]) == (0, printed)
    assert unmeant.is_dir()


def test_what_does_not_apply_to_another_subject_is_blocked(cli: Cli, unmeant: Path) -> None:
    (unmeant / "other.json").write_text(RUN.read_text() + "\n")
    other = cli(*PULL, "--subject", "run=other.json")
    assert (other.code, other.out.count("is of another run than is looked at here: ")) == (3, 1)
    assert "BLOCKED  GATE-GPUTRAIN-004, GATE-GPUTRAIN-005" in other.lines
    (unmeant / "torn.json").write_text("")
    torn = cli(*PULL, "--subject", "run=torn.json")
    assert (torn.code, "(lane-other-subject)" in torn.out) == (3, True)


def test_what_does_not_apply_under_another_contract_is_blocked(cli: Cli, unmeant: Path) -> None:
    edit(unmeant / "contracts" / "training.yaml", "when: {steps: 50}", "when: {steps: 100}")
    commit(unmeant)
    other = cli(*PULL)
    assert (other.code, "BLOCKED  GATE-GPUTRAIN-004, GATE-GPUTRAIN-005" in other.lines) == (3, True)


def test_the_required_check_needs_a_gate_that_passed(cli: Cli, project: Path) -> None:
    edit(project / "contracts" / "training.yaml", TRAINING.partition("gates:\n")[2], UNMEANT)
    commit(project)
    assert cli(*NIGHTLY).code == 5
    commit(project)
    ended = cli("status", "--require", "nightly")
    assert (ended.code, ended.lines[-1]) == (5, "lane nightly: 1 not applicable of 1 -> exit 5 (nothing shown)")


# --- The one required check -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_required_check_passes_where_every_gate_of_the_lane_is_decided(
    cli: Cli, night: Path, project: Path
) -> None:
    required = ("status", "--require", "pull-request")
    missing = cli(*required)
    assert (missing.code, missing.lines[-1]) == (3, "lane pull-request: 1 blocked, 1 passed of 2 -> exit 3 (blocked)")
    assert cli(*PULL, "--record").code == 0
    passed = cli(*required)
    assert (passed.code, passed.lines[-1]) == (0, "lane pull-request: 2 passed of 2 -> exit 0 (passed)")
    assert any(line.startswith(f"    by lane nightly: bundle {night.name[-12:]}") for line in passed.lines)
    tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(hours=40)
    assert cli(*required, "--as-of", f"{tomorrow:%Y-%m-%dT%H:%M:%SZ}").code == 3
    (project / "src" / "convert" / "convert.py").write_text("bits = 32\n")
    commit(project)
    changed = json.loads(cli(*required, "--json").out)
    assert [(one["gate"], one["lane"], one["outcome"], one["code"]) for one in changed["gates"]] == [
        ("GATE-IMPORT-001", "pull-request", "BLOCKED", "lane-other-tree"),
        ("GATE-GPUTRAIN-004", "nightly", "PASS", "pass"),
    ]


def test_a_lane_that_only_accepts_is_bound_to_the_other_lanes_evidence(cli: Cli, project: Path) -> None:
    lane = '[lanes.gpu]\ndecides = []\naccepts = {nightly = {max_age = "36h"}}\n\n'
    edit(project / "weighbridge.toml", "[lanes.nightly]", f"{lane}[lanes.nightly]")
    commit(project)
    before = cli("verify", "--lane", "gpu")
    assert (before.code, "lane-no-evidence" in before.out) == (3, True)
    assert cli(*NIGHTLY).code == 0
    commit(project)
    after = cli("verify", "--lane", "gpu")
    assert (after.code, "by lane nightly" in after.out) == (0, True)
    assert cli("status", "--require", "gpu").code == 0


def test_a_waiver_excuses_a_gate_that_needs_a_lane(cli: Cli, project: Path) -> None:
    today = dt.datetime.now(dt.UTC).date()
    (project / "waivers.yaml").write_text(
        "weighbridge: waivers/v0\nwaivers:\n  - {contract: my-training, gate: GATE-GPUTRAIN-004, covers: BLOCKED, "
        f"reason: The GPU host is down, owner: Ada, created: {today}, expires: {today + dt.timedelta(days=20)}}}\n"
    )
    ended = cli(*PULL, "--record")
    assert (ended.code, "1 blocked, 1 passed of 2, 1 excused -> exit 0 (passed)" in ended.lines) == (0, True)
    assert cli("status", "--require", "pull-request").code == 0


@pytest.mark.parametrize("needed", ["true", "false"])
def test_a_lane_whose_host_is_not_as_it_requires_measures_nothing(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "" if needed == "false" else "0")
    edit(project / "weighbridge.toml", "[lanes.nightly]", f"[lanes.nightly]\nrequires = {{hidden = {needed}}}")
    ended = cli(*NIGHTLY)
    assert (ended.code, ended.out, (project / "evidence").exists()) == (3, "", False)
    assert f"lane-host lane nightly requires hidden: {needed}" in ended.err


# --- What is refused --------------------------------------------------------------------------------------------------


@each(
    "old, new, printed",
    [
        (
            '["GATE-GPUTRAIN-*"]',
            '["GATE-OTHER"]',
            "weighbridge.toml:10:1: glob-matches-nothing 'GATE-OTHER' matches no gate",
        ),
        (
            '["GATE-GPUTRAIN-*"]',
            '["GATE-OTHER"]',
            "contracts/training.yaml:9:5: undecided-gate no lane decides GATE-GPUTRAIN-004",
        ),
        (
            "nightly = {",
            "nigthly = {",
            "weighbridge.toml:7:1: unknown-lane the lane pull-request accepts from 'nigthly', which is no other",
        ),
        (
            "nightly = {",
            "pull-request = {",
            "weighbridge.toml:7:1: unknown-lane the lane pull-request accepts from 'pull-request', which is no other",
        ),
        (
            "src/train/**",
            "src/trian/**",
            "weighbridge.toml:11:1: glob-matches-nothing 'src/trian/**' matches no file that git tracks",
        ),
        (
            "[lanes.nightly]",
            '[lanes.nightly]\ncontracts = ["contract/*.yaml"]',
            "weighbridge.toml:10:1: glob-matches-nothing 'contract/*.yaml' matches no file",
        ),
        (
            "[lanes.nightly]",
            "[lanes.nightly]\nrequire = {cuda = true}",
            "weighbridge.toml:10:1: unknown-key unknown key 'require'; did you mean 'requires'?",
        ),
        ("36h", "36", "weighbridge.toml:7:1: bad-form '36' is not hours or days, such as \"36h\""),
        ("36h", '"36h', "weighbridge.toml:7:24: toml-syntax"),
        ("[lanes.nightly]", "[lane.nightly]", "weighbridge.toml:9:1: unknown-key unknown key 'lane'"),
        (
            "[lanes.nightly]",
            "[lanes.idle]\ndecides = []\n\n[lanes.nightly]",
            "weighbridge.toml:10:1: wrong-length the lane idle decides no gate, and accepts from no lane",
        ),
    ],
)
def test_lint_refuses_lanes_that_leave_something_open_with_its_line(
    cli: Cli, project: Path, old: str, new: str, printed: str
) -> None:
    (project / "weighbridge.toml").write_text(LANES)
    assert cli("lint").code == 0
    edit(project / "weighbridge.toml", old, new)
    ended = cli("lint")
    assert ended.code == 2
    assert printed in ended.err
    assert cli(*NIGHTLY).code == 2


def test_a_lane_that_is_not_there_and_contracts_beside_a_lane_are_2(cli: Cli, project: Path) -> None:
    assert (
        "unknown-lane weighbridge.toml has no lane 'nigthly'; did you mean 'nightly'?"
        in cli("verify", "--lane", "nigthly").err
    )
    assert cli("verify", "contracts/import.yaml", "--lane", "nightly").code == 2
    assert cli("status", "--require", "weekly").code == 2
    (project / "weighbridge.toml").unlink()
    assert "weighbridge.toml: file-missing" in cli("verify", "--lane", "nightly").err
    (project / "weighbridge.toml").write_bytes(b"\xff")
    with pytest.raises(ContractError, match="toml-syntax"):
        load_project()


def test_a_lane_without_paths_depends_on_all_that_is_tracked_but_evidence_and_waivers(cli: Cli, project: Path) -> None:
    edit(project / "weighbridge.toml", 'paths = ["src/train/**"]\n', "")
    commit(project)
    assert cli(*NIGHTLY).code == 0
    (project / "waivers.yaml").write_text("weighbridge: waivers/v0\nwaivers: []\n")
    commit(project)
    assert cli(*PULL).code == 0
    (project / "notes.md").write_text("a word\n")
    commit(project)
    assert "all that is tracked (the lane nightly has no paths) is the tree" in cli(*PULL).out


# --- Whose runs a witness saw -----------------------------------------------------------------------------------------


STEPS = """    kind: steps-asked
    subjects: {run: run}
"""


@pytest.mark.slow
def test_a_lane_takes_verdicts_of_any_origin_unless_it_wants_live_ones(cli: Cli, project: Path) -> None:
    training = project / "contracts" / "training.yaml"
    training.write_text(training.read_text().partition("    kind: wall-time")[0] + STEPS)
    run = typed(project / "runs" / "a", started=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"))
    (project / ".gitignore").write_text(".weighbridge/\nruns/\n")
    nightly = ("verify", "--lane", "nightly", "--record", "--subject", "run=runs/a")
    commit(project)
    assert cli(*nightly).code == 0
    commit(project)
    assert cli(*PULL).code == 0
    edit(project / "weighbridge.toml", '{max_age = "36h"}', '{max_age = "36h", origin = "live"}')
    commit(project)
    kept = cli(*PULL)
    assert kept.code == 3
    assert "came to PASS on subjects that are reported, and only live ones are accepted (lane-origin)" in kept.out
    assert cli("status", "--require", "pull-request").code == 3
    watched(run)
    assert cli(*nightly).code == 0
    commit(project)
    taken = cli(*PULL)
    assert taken.code == 0, taken.out
    (run / "steps.jsonl").write_text("".join((run / "steps.jsonl").read_text().splitlines(keepends=True)[:50]))
    assert cli(*nightly).code == 1
    commit(project)
    failed = cli(*PULL)
    assert (failed.code, "FAIL     GATE-GPUTRAIN-004" in failed.out) == (1, True)


def test_a_lane_can_want_live_evidence_and_nothing_else(project: Path) -> None:
    edit(project / "weighbridge.toml", '{max_age = "36h"}', '{max_age = "36h", origin = "reported"}')
    with pytest.raises(ContractError, match="live"):
        load_project()
