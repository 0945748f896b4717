"""The built wheel is the tool: whole, nothing besides, and judging alike on another machine."""

from __future__ import annotations

import email
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.consoles import Typed, steps

from weighbridge import __version__, gates
from weighbridge.contract.load import builtin_names
from weighbridge.gates import KINDS
from weighbridge.verifiers import MODULES

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).resolve().parents[1]
DATA = (
    "contracts",
    "gates",
    "verifiers",
    "words",
    "spec/ck.analysis.v1.schema.json",
    "templates/ci",
    "templates/plugin.toml",
    "templates/contract.txt",
    "templates/repro.txt",
    "templates/rule.py",
    "templates/rule.yaml",
)
CHECKPOINTS = ROOT / "verifiers" / "specimens" / "checkpoints"
# Another user who may read all, for the interpreter can lie in somebody's home.
AS_NOBODY = (
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)  # fmt: skip


def tracked(*folders: str) -> list[str]:
    listed = subprocess.run(("git", "ls-files", "-z", *folders), cwd=ROOT, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Give a folder that every user of the machine can read, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="weighbridge-wheel-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def wheel(place: Path) -> Path:
    """Build the wheel from a clean copy of the tracked files."""
    for name in tracked():
        (place / "copy" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, place / "copy" / name)
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place / "dist"))
    subprocess.run(build, cwd=place / "copy", check=True, capture_output=True)
    (built,) = (place / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(place: Path, wheel: Path) -> Path:
    """Install the wheel and its dependencies into an environment of its own: no torch, no development tools."""
    return new_environment(place, "venv", str(wheel))


def new_environment(place: Path, name: str, wheel: str) -> Path:
    """Install with the pip that runs here: one of its own is most of what an environment costs."""
    venv = place / name
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(venv)), check=True, capture_output=True)
    pip = (sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "install", "--quiet", wheel)
    subprocess.run(pip, check=True, capture_output=True, env=environment(place))
    return venv / "bin"


def environment(home: Path, **more: str) -> dict[str, str]:
    """Keep nothing of this process's environment that could lead back to the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    return {**kept, "HOME": str(home), **more}


def run(
    installed: Path, *words: object, become: tuple[str, ...] = (), cwd: str = "/", **more: str
) -> subprocess.CompletedProcess[bytes]:
    command = (*become, str(installed / "weighbridge"), *map(str, words))
    return subprocess.run(
        command, cwd=cwd, check=False, capture_output=True, env=environment(installed, **more)
    )  # fmt: skip


# --- What is inside ---------------------------------------------------------------------------------------------------


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_the_package_its_data_and_its_licence_and_nothing_else(wheel: Path) -> None:
    package = {name.removeprefix("src/") for name in tracked("src")}
    data = {f"weighbridge/data/{name}" for name in tracked(*DATA)}
    info = f"weighbridge-{__version__}.dist-info"
    about = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    assert names(wheel) == package | data | about
    assert "weighbridge/py.typed" in package


def test_the_wheel_says_what_it_is_and_no_address_that_nobody_vouches_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        printed = email.message_from_bytes(archive.read(f"weighbridge-{__version__}.dist-info/METADATA"))
    assert (printed["Name"], printed["License-Expression"], printed["Requires-Python"]) == (
        "weighbridge",
        "Apache-2.0",
        ">=3.11",
    )
    assert {"gguf", "pytorch", "safetensors"} <= set(printed["Keywords"].split(","))
    assert "Framework :: Pytest" in printed.get_all("Classifier", [])
    assert printed.get_all("Project-URL", []) == []
    assert str(printed.get_payload()).startswith("# weighbridge: ")


def test_the_wheel_holds_one_card_and_one_module_for_every_gate_kind_and_quantity(wheel: Path) -> None:
    def stems(prefix: str, suffix: str) -> set[str]:
        return {Path(n).stem for n in names(wheel) if n.startswith(prefix) and n.count("/") == prefix.count("/")
                and n.endswith(suffix)}  # fmt: skip

    assert stems("weighbridge/data/gates/", ".yaml") == set(KINDS)
    assert set(gates.MODULES.values()) <= stems("weighbridge/gates/", ".py")
    modules = set(MODULES.values())
    assert stems("weighbridge/data/verifiers/", ".yaml") == modules
    assert modules <= stems("weighbridge/verifiers/", ".py")


def test_the_wheel_holds_every_starter_contract_and_every_specimen(wheel: Path) -> None:
    contracts = {n for n in names(wheel) if n.startswith("weighbridge/data/contracts/")}
    assert {Path(name).stem for name in contracts if not name.endswith("/README.md")} == {
        *("checkpoint-health", "checkpoint-import", "diagnostics", "forward-parity"),
        *("model-import", "pretraining", "recorded-parity", "training-log", "training-run"),
    }
    specimens = {n for n in names(wheel) if n.startswith("weighbridge/data/verifiers/specimens/")}
    assert len(specimens) == len(tracked("verifiers/specimens")) >= 40


# --- What it does, installed alone ------------------------------------------------------------------------------------


def test_installed_alone_it_has_no_torch_and_no_development_tools(installed: Path) -> None:
    absent = {"torch", "pytest", "hypothesis", "jsonschema", "mypy", "ruff", "securesystemslib", "cryptography"}
    assert not packages_in(installed) & absent


def packages_in(installed: Path) -> set[str]:
    pip = (sys.executable, "-m", "pip", "--python", str(installed / "python"), "list", "--format=freeze")
    listed = subprocess.run(pip, check=True, capture_output=True)
    return {line.partition("==")[0].lower() for line in listed.stdout.decode().splitlines()}


def test_installed_alone_it_tells_its_version_and_reads_its_own_contracts(installed: Path) -> None:
    assert run(installed, "--version").stdout.decode() == f"weighbridge, version {__version__}\n"
    linted = run(installed, "lint", *(f"builtin:{name}" for name in builtin_names()))
    assert (linted.returncode, linted.stdout.decode()) == (0, "9 of 9 contracts are usable\n")


def test_installed_alone_its_selftest_holds_and_says_what_it_could_not_try(installed: Path) -> None:
    tried = run(installed, "selftest")
    *skipped, printed = tried.stdout.decode().splitlines()
    assert tried.returncode == 0
    assert printed.endswith(f" hold, 0 wrong, {len(skipped)} not tried")
    assert skipped
    needs = {"forward_errors": "torch", "run_files": "jsonschema"}
    assert {line.split()[1].rstrip(":"): line.rpartition(" ")[2] for line in skipped} == needs


def test_installed_alone_it_compares_checkpoints(installed: Path) -> None:
    source = CHECKPOINTS / "source.safetensors"
    assert run(installed, "compare", source, CHECKPOINTS / "import.gguf").returncode == 0
    different = run(installed, "compare", source, CHECKPOINTS / "mislabelled.gguf")
    assert different.returncode == 1
    assert b"6 of 6 elements explained: bf16-bits-as-f16" in different.stdout


def test_installed_alone_the_first_commands_of_the_readme_end_as_printed(installed: Path, place: Path) -> None:
    (folder := place / "readme").mkdir()
    first = (ROOT / "README.md").read_text(encoding="utf-8").partition("**Gate it in CI.**")[0]
    typed = [one for one in steps(first) if isinstance(one, Typed) and one.line.startswith("weighbridge ")]
    ended = {}
    for one in typed:
        cwd = folder if "demo" in one.line else folder / "try"
        ended[one.line] = run(installed, *shlex.split(one.line)[1:], cwd=str(cwd)).returncode
    assert (len(ended), ended) == (6, {one.line: one.ends for one in typed})


def test_installed_alone_its_demo_says_what_is_missing(installed: Path) -> None:
    refused = run(installed, "demo")
    assert refused.returncode == 2
    assert b"pip install 'weighbridge[torch]'" in refused.stderr


def test_installed_alone_its_doctor_says_what_each_extra_lacks(installed: Path) -> None:
    printed = run(installed, "doctor").stdout.decode()
    assert "extra sign         lacks securesystemslib: signed evidence; pip install 'weighbridge[sign]'\n" in printed
    assert (
        "extra torch        lacks jsonschema, nvidia-ml-py, safetensors, torch: recorder, forward parity, demo; "
        in printed
    )
    assert "torch is not installed" in printed


def test_installed_alone_a_key_needs_the_extra(installed: Path) -> None:
    refused = run(installed, "evidence", "keygen", "/nowhere/key")
    assert refused.returncode == 2
    assert b"pip install 'weighbridge[sign]'" in refused.stderr


# --- Judging again, elsewhere -----------------------------------------------------------------------------------------

SEALED: Mapping[str, tuple[str, ...]] = {
    "passed": ("builtin:checkpoint-import", "source=checkpoints/source.safetensors", "import=checkpoints/import.gguf"),
    "failed": (
        "builtin:checkpoint-import", "source=checkpoints/source.safetensors", "import=checkpoints/mislabelled.gguf"
    ),
    "run": ("builtin:training-run", "run=runs/wrapped"),
    "report": ("builtin:pretraining", "run=runs/report.json", "refusal=false"),
    "unreadable": ("builtin:checkpoint-import", "source=nowhere", "import=checkpoints/import.gguf"),
}  # fmt: skip

ELSEWHERE: Mapping[str, Mapping[str, str]] = {
    "far-east-in-C": {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    "half-hours-in-turkish": {"TZ": "America/St_Johns", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "4294967295"},
    "no-utf-8": {"TZ": "UTC", "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "another-user": {"TZ": "Asia/Kathmandu", "LANG": "C.UTF-8", "USER": "nobody", "LOGNAME": "nobody"},
}


@pytest.fixture(scope="module")
def bundles(place: Path) -> Path:
    """Seal bundles with this checkout."""
    for name, (contract, *subjects) in SEALED.items():
        bound = [word for subject in subjects for word in ("--subject", subject)]
        words = ("verify", contract, *bound, "--evidence", str(place / "sealed" / name))
        subprocess.run(
            (sys.executable, "-m", "weighbridge", *words),
            cwd=ROOT / "verifiers" / "specimens", check=False, capture_output=True,
        )  # fmt: skip
    return place / "sealed"


@pytest.mark.parametrize("where", ELSEWHERE)
@pytest.mark.parametrize("name", SEALED)
def test_a_bundle_judges_again_elsewhere_to_the_same_bytes(
    installed: Path, bundles: Path, name: str, where: str
) -> None:
    become = AS_NOBODY if where == "another-user" else ()
    if become and (os.geteuid() != 0 or not shutil.which(become[0])):
        pytest.skip("only root can become another user, with setpriv")
    (bundle,) = (bundles / name / "bundles").iterdir()
    again = run(installed, "evidence", "rejudge", bundle, "--print", become=become, **ELSEWHERE[where])
    assert (again.returncode, again.stdout) == (0, (bundle / "verdicts.json").read_bytes()), again.stderr.decode()
    assert b" follows from the measurements" in again.stderr.replace(b"follow from", b"follows from")


# --- The reviewer's four questions, elsewhere -------------------------------------------------------------------------


def here(*words: object, cwd: Path) -> None:
    subprocess.run((sys.executable, "-m", "weighbridge", *map(str, words)), cwd=cwd, check=False, capture_output=True)


@pytest.fixture(scope="module")
def desk(place: Path, wheel: Path) -> Path:
    """Seal, sign and zip bundles with this checkout, and lay them under other names before an empty environment."""
    new_environment(place, "reviewer", f"{wheel}[sign]")
    desk, home = place / "desk", place / "home"
    for folder in (desk / "contracts", home):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "contracts" / "checkpoint-import.yaml", desk / "contracts")
    for name in ("ada", "eve"):
        here("evidence", "keygen", home / name, cwd=home)
        shutil.copy(home / f"{name}.pub", desk)
    for name, imported in (("good", "import.gguf"), ("bad", "relabelled.safetensors")):
        bound = (f"source={CHECKPOINTS / 'source.safetensors'}", f"import={CHECKPOINTS / imported}")
        words = (word for one in bound for word in ("--subject", one))
        here("verify", "contracts/checkpoint-import.yaml", *words, "--evidence", home / name, cwd=ROOT)
        (bundle,) = (home / name / "bundles").iterdir()
        here("evidence", "sign", bundle, "--key", home / "ada", cwd=home)
        (desk / f"{name}.id").write_text(bundle.name[-12:])
        shutil.make_archive(str(desk / name), "zip", bundle.parent, bundle.name)
        (desk / f"{name}.zip").rename(desk / f"From CI, {name}.zip")
    shutil.copy(CHECKPOINTS / "import.gguf", desk / "model.gguf")
    return desk


def test_the_reviewer_has_the_wheel_and_the_extra_alone(desk: Path) -> None:
    packages = packages_in(desk.parent / "reviewer" / "bin")
    assert {"weighbridge", "securesystemslib", "cryptography"} <= packages
    assert not packages & {"torch", "pytest", "hypothesis"}


def ask(desk: Path, name: str, *words: str) -> tuple[int, str]:
    """Ask as another user, in another locale and time zone; return the exit code and what was printed."""
    become = AS_NOBODY if os.geteuid() == 0 and shutil.which(AS_NOBODY[0]) else ()
    words = ("evidence", words[0], f"From CI, {name}.zip", "--id", (desk / f"{name}.id").read_text(), *words[1:])
    where = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7", "USER": "nobody"}
    ended = run(desk.parent / "reviewer" / "bin", *words, become=become, cwd=str(desk), **where)
    printed = (ended.stdout + ended.stderr).decode()
    print(f"$ weighbridge {shlex.join(words)}\n{printed}exit {ended.returncode}\n")
    return ended.returncode, printed


def line(printed: str, name: str) -> str:
    return next(one for one in printed.splitlines() if one.startswith(f"  {name}"))


def test_did_it_pass(desk: Path) -> None:
    code, printed = ask(desk, "good", "verify", "--require-pass")
    assert (code, printed.splitlines()[1].split()[0]) == (0, "PASS")
    code, printed = ask(desk, "bad", "verify", "--require-pass")
    assert (code, printed.splitlines()[1].split()[0]) == (1, "FAIL")


def test_is_it_my_file(desk: Path) -> None:
    code, printed = ask(desk, "good", "verify", "--subject", "import=model.gguf")
    assert (code, "model.gguf is import@default as it was measured" in line(printed, "subject import")) == (0, True)
    code, printed = ask(desk, "bad", "verify", "--subject", "import=model.gguf")
    assert (code, "is not import@default as it was measured" in line(printed, "subject import")) == (1, True)


def test_who_measured(desk: Path) -> None:
    code, printed = ask(desk, "good", "verify", "--key", "ada.pub")
    assert (code, "signed by ada.pub" in line(printed, "authenticity")) == (0, True)
    code, printed = ask(desk, "good", "verify", "--key", "eve.pub")
    assert (code, "not-signed" in line(printed, "authenticity")) == (1, True)


def test_does_it_still_hold(desk: Path) -> None:
    code, printed = ask(desk, "good", "verify", "--require-anchor")
    assert (code, line(printed, "freshness")) == (0, "  freshness     holds       0.0 days old")
    assert "1 of 1 verdict follows, byte for byte" in line(printed, "rederivation")
    code, printed = ask(desk, "good", "rejudge")
    assert (code, "1 of 1 finding follows from the measurements" in printed) == (0, True)


def test_it_no_longer_holds_under_a_changed_contract_or_with_a_changed_byte(desk: Path) -> None:
    contract, archive = desk / "contracts" / "checkpoint-import.yaml", desk / "From CI, good.zip"
    before, packed = contract.read_bytes(), archive.read_bytes()
    contract.write_bytes(before.replace(b"version: 1.0.0", b"version: 1.0.1"))
    _, printed = ask(desk, "good", "verify")
    assert "STALE: 0.0 days old; the contract has changed since" in line(printed, "freshness")
    contract.write_bytes(before)
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(desk / "new.zip", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'"PASS"', b'"FAIL"'))
    (desk / "new.zip").replace(archive)
    code, printed = ask(desk, "good", "verify", "--key", "ada.pub")
    archive.write_bytes(packed)
    assert (code, line(printed, "integrity").split()[1], line(printed, "authenticity").split()[1]) == (
        1,
        "broken",
        "none",
    )
