"""host: has this machine a CUDA device that works? Asked in another process, which a driver may hang or end."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weighbridge.core import Fields, Measurement, Record, Unmeasured, dataclass, field
from weighbridge.quantities.base import record_of
from weighbridge.quantities.facts import Host
from weighbridge.verifiers.command_outcome import HIDDEN, extent
from weighbridge.verifiers.verifier import Canary, Verifier, Views

PROBE_SECONDS = 120.0
BUILD = re.compile(r"^(cuda|hip)\b[^=]*=\s*(None|'[^']*')\s*$", re.MULTILINE)
VISIBLE = "CUDA_VISIBLE_DEVICES"

PROBE = """
import json, torch
found = {"cuda": False, "devices": torch.cuda.device_count(), "why": ""}
if not found["devices"]:
    found["why"] = "torch sees no CUDA device"
else:
    a = torch.full((64, 64), 2.0, device="cuda")
    total = (a @ a).sum()
    torch.cuda.synchronize()
    found["cuda"] = total.item() == 64 * 64 * 64 * 4.0
    found["why"] = "" if found["cuda"] else "a product computed on the device is wrong"
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class HostView:
    """This machine, as a process with this environment sees it."""

    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Measure whether CUDA works for a process with this environment, and if not, why."""
    view: HostView = views[0] if views else HostView()
    cuda, devices, why = _probe(view.environment)
    found = Record(Host(cuda=cuda, devices=devices, why=why, hidden=view.environment.get(VISIBLE) == ""))
    at = "now, in a process of its own"
    return Measurement(quantity="host", value=found, by="torch.cuda", at=at, examined=1, total=1)


def built_for(version: str) -> dict[str, str]:
    """Return what torch was built for, read from the text of its `version.py`; a word that is absent is left out."""
    return {name: "" if value == "None" else value.strip("'") for name, value in BUILD.findall(version)}


def _probe(environment: Mapping[str, str]) -> tuple[bool, int, str]:
    """Return whether CUDA works, how many devices there are, and why it does not."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False, 0, "torch is not installed"
    version = Path(spec.origin).with_name("version.py")
    if version.is_file() and built_for(version.read_text("utf-8", "replace")) == {"cuda": "", "hip": ""}:
        return False, 0, "the installed torch is built without CUDA and ROCm"
    how: dict[str, Any] = {"env": environment, "stdin": subprocess.DEVNULL, "timeout": PROBE_SECONDS}
    try:
        done = subprocess.run([sys.executable, "-P", "-c", PROBE], capture_output=True, check=False, **how)
    except subprocess.TimeoutExpired:
        return False, 0, f"the device gave no answer within {PROBE_SECONDS:g} s"
    if done.returncode:
        return False, 0, f"the probe of the device ended with exit code {done.returncode}"
    answer = json.loads(done.stdout.splitlines()[-1])
    return bool(answer["cuda"]), int(answer["devices"]), str(answer["why"])


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary:
    """Ask again with every device hidden: the answer must be no, and must show that the hiding was seen."""
    view: HostView = views[0] if views else HostView()
    hidden = HostView({**view.environment, **HIDDEN})

    def seen(again: Measurement | Unmeasured) -> bool:
        found = record_of(again, Host)
        return found is not None and found == Host(cuda=False, devices=0, why=found.why or "no reason", hidden=True)

    return Canary(name="every device hidden", place="host", views=(hidden,), seen=seen)


VERIFIER = Verifier(quantity="host", kinds=(), measure=measure, extent=extent, canary=canary)
