"""The built wheel is the tool: whole, nothing besides, and judging alike on another machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from weighbridge import __version__
from weighbridge.gates import KINDS
from weighbridge.verifiers import MODULES

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
DATA = ("contracts", "gates", "verifiers", "words")
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
    venv = place / "venv"
    subprocess.run((sys.executable, "-m", "venv", str(venv)), check=True, capture_output=True)
    pip = (str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel))
    subprocess.run(pip, check=True, capture_output=True, env=environment(place))
    return venv / "bin"


def environment(home: Path, **more: str) -> dict[str, str]:
    """Keep nothing of this process's environment that could lead back to the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    return {**kept, "HOME": str(home), **more}


def run(
    installed: Path, *words: object, become: tuple[str, ...] = (), **more: str
) -> subprocess.CompletedProcess[bytes]:
    command = (*become, str(installed / "weighbridge"), *map(str, words))
    return subprocess.run(
        command, cwd="/", check=False, capture_output=True, env=environment(installed, **more)
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


def test_the_wheel_holds_one_card_and_one_module_for_every_gate_kind_and_quantity(wheel: Path) -> None:
    def stems(prefix: str, suffix: str) -> set[str]:
        return {Path(n).stem for n in names(wheel) if n.startswith(prefix) and n.count("/") == prefix.count("/")
                and n.endswith(suffix)}  # fmt: skip

    assert stems("weighbridge/data/gates/", ".yaml") == set(KINDS)
    assert {kind.replace("-", "_") for kind in KINDS} <= stems("weighbridge/gates/", ".py")
    modules = set(MODULES.values())
    assert stems("weighbridge/data/verifiers/", ".yaml") == modules
    assert modules <= stems("weighbridge/verifiers/", ".py")


def test_the_wheel_holds_every_starter_contract_and_every_specimen(wheel: Path) -> None:
    contracts = {n for n in names(wheel) if n.startswith("weighbridge/data/contracts/")}
    assert {Path(name).stem for name in contracts} == {
        "checkpoint-health", "checkpoint-import", "forward-parity", "gpu-training-backend", "model-import",
        "training-run"
    }  # fmt: skip
    specimens = {n for n in names(wheel) if n.startswith("weighbridge/data/verifiers/specimens/")}
    assert len(specimens) == len(tracked("verifiers/specimens")) >= 40


# --- What it does, installed alone ------------------------------------------------------------------------------------


def test_installed_alone_it_has_no_torch_and_no_development_tools(installed: Path) -> None:
    listed = subprocess.run((str(installed / "pip"), "list", "--format=freeze"), check=True, capture_output=True)
    packages = {line.partition("==")[0].lower() for line in listed.stdout.decode().splitlines()}
    assert not packages & {"torch", "pytest", "hypothesis", "jsonschema", "mypy", "ruff"}


def test_installed_alone_it_tells_its_version_and_reads_its_own_contracts(installed: Path) -> None:
    assert run(installed, "--version").stdout.decode() == f"weighbridge, version {__version__}\n"
    linted = run(installed, "lint")
    assert (linted.returncode, linted.stdout.decode()) == (0, "6 of 6 contracts are usable\n")


def test_installed_alone_its_selftest_holds_and_says_what_it_could_not_try(installed: Path) -> None:
    tried = run(installed, "selftest")
    *skipped, told = tried.stdout.decode().splitlines()
    assert tried.returncode == 0
    assert told.endswith(f" hold, 0 wrong, {len(skipped)} not tried")
    assert skipped
    assert all(line.startswith("skipped forward_errors: ") and line.endswith(": needs torch") for line in skipped)


def test_installed_alone_it_compares_checkpoints(installed: Path) -> None:
    source = CHECKPOINTS / "source.safetensors"
    assert run(installed, "compare", source, CHECKPOINTS / "import.gguf").returncode == 0
    different = run(installed, "compare", source, CHECKPOINTS / "mislabelled.gguf")
    assert different.returncode == 1
    assert b"6 of 6 elements explained: bf16-bits-as-f16" in different.stdout


def test_installed_alone_its_demo_says_what_is_missing(installed: Path) -> None:
    refused = run(installed, "demo")
    assert refused.returncode == 2
    assert b"pip install 'weighbridge[torch]'" in refused.stderr


# --- Judging again, elsewhere -----------------------------------------------------------------------------------------

SEALED: Mapping[str, tuple[str, ...]] = {
    "passed": ("builtin:checkpoint-import", "source=checkpoints/source.safetensors", "import=checkpoints/import.gguf"),
    "failed": (
        "builtin:checkpoint-import", "source=checkpoints/source.safetensors", "import=checkpoints/mislabelled.gguf"
    ),
    "run": ("builtin:training-run", "run=runs/wrapped"),
    "report": ("builtin:gpu-training-backend", "run=runs/report.json", "refusal=false"),
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
    assert b" findings follow from the measurements" in again.stderr
