"""Nothing is shared between tests but this: no test writes into the checkout, and none is held to a time."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Each worker has a core: the threads that torch starts beside it only spin, for most of the time that a test takes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What is imported stays: looking through all of torch for garbage took a third of some files' time, and finds none.
gc.disable()

# What a test writes need not outlast a power cut; a descriptor that is not open is still refused.
os.fsync = os.fstat  # type: ignore[assignment]

# A repository of a test has no use for samples of hooks, for upkeep after each commit, or for outlasting a power cut.
os.environ |= {"GIT_TEMPLATE_DIR": "", "GIT_CONFIG_COUNT": "2"}
os.environ |= {"GIT_CONFIG_KEY_0": "maintenance.auto", "GIT_CONFIG_VALUE_0": "false"}
os.environ |= {"GIT_CONFIG_KEY_1": "core.fsync", "GIT_CONFIG_VALUE_1": "none"}

# Where these tests run changes nothing of what they see.
for name in (
    "CI",
    "FORCE_COLOR",
    "NO_COLOR",
    "GITHUB_ACTIONS",
    "GITHUB_STEP_SUMMARY",
    "GITHUB_WORKSPACE",
    "CI_PROJECT_DIR",
):
    os.environ.pop(name, None)

# A machine that has much else to do is slow, not wrong; and an example that writes into `tmp_path` writes all it reads.
settings.register_profile(
    "weighbridge", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.register_profile("quick", settings.get_profile("weighbridge"), max_examples=20)
settings.load_profile("weighbridge")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Write into a report how many cases a test tries."""
    for item in items:
        if cases := getattr(getattr(item, "function", None), "cases", 0):
            item.user_properties.append(("cases", cases))


def pytest_collection_finish() -> None:
    """Let no collection of garbage look again at what the tests import."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)  # a tree of all of the source is no garbage at every 700th node
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def state(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the pseudonym key of the person who tests out of the tests, and theirs out of the person's home."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """Forget what another test compiled in this process: a recorder that sees it audits nothing."""
    if (compiled := sys.modules.get("torch._dynamo")) is not None:
        compiled.reset()
        compiled.utils.counters.clear()


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run the test in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def only_our_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the pytest of a test without the plugins of other packages, which cost it more than its tests do."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin,weighbridge.pytest.plugin")
