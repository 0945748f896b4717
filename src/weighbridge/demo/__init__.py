"""The demo, step by step: each is a command that a person could type, run for real, with the exit code it must have."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from weighbridge.core import ExitCode, dataclass

SOURCE, IMPORT, MISLABELLED = "model.safetensors", "model.gguf", "mislabelled.safetensors"


@dataclass(frozen=True, slots=True)
class DemoStep:
    """One step: why, what is typed (the words after `weighbridge`, or a Python module), and how it must end."""

    why: str
    words: tuple[str, ...]
    ends: ExitCode = ExitCode.PASSED
    module: str = "weighbridge"


TRAIN = DemoStep(
    "Train a small GPT on the text of Python's standard library, recorded, until it has passed its corpus once",
    (".",),
    module="weighbridge.demo.train",
)


def steps(*, cuda: bool) -> tuple[DemoStep, ...]:
    """Return what is weighed once there is a trained model and two imports; `cuda` says whether this host has it."""
    run = ("verify", "builtin:training-run", "--subject", "run=run", "--record")
    run_on = ("--param", "device=cuda") if cuda else ()
    imports = ("verify", "builtin:checkpoint-import", "--subject", f"source={SOURCE}", "--subject")
    parity = ("verify", "builtin:forward-parity", "--subject", "reference=models.py:reference", "--subject")
    on_cuda = ("--subject", "cuda=models.py:on_cuda", *(() if cuda else ("--expect-blocked", "GATE-PARITY-CUDA")))
    blocked = "" if cuda else "; the CUDA gate is BLOCKED, for this host has none"
    typed = (
        ("Weigh the run: metrics, wrap-around, wall time, device", (*run, *run_on)),
        ("Compare the GGUF import with its source", ("compare", SOURCE, IMPORT)),
        ("Compare an import whose BF16 bytes are labelled F16: it must be refused, and the mechanism named",
         ("compare", SOURCE, MISLABELLED), ExitCode.FAILED),
        ("Weigh the good import against its contract, and record it", (*imports, f"import={IMPORT}", "--record")),
        ("Weigh the mislabelled import against the same contract",
         (*imports, f"import@mislabelled={MISLABELLED}"), ExitCode.FAILED),
        (f"Compare two backends forward: PyTorch on the source, NumPy on the import{blocked}",
         (*parity, "candidate=models.py:numpy_backend", *on_cuda, "--record")),
        ("Drop a bias in the NumPy backend on purpose: the first capture point that parts must be named",
         (*parity, "candidate=models.py:numpy_backend_without_a_bias", *on_cuda), ExitCode.FAILED),
    )  # fmt: skip
    return tuple(DemoStep(*one) for one in typed)


def to_gguf(source: Path, target: Path) -> None:
    """Write every BF16 tensor of a safetensors file into a GGUF file, names kept, bits untouched."""
    import gguf
    import ml_dtypes  # noqa: F401 -- it teaches NumPy the dtype that `load_file` returns
    import numpy as np
    from safetensors.numpy import load_file

    writer = gguf.GGUFWriter(str(target), arch="gpt2")
    writer.add_block_count(3)
    for name, tensor in sorted(load_file(source).items()):
        words = tensor.view(np.uint8).reshape(*tensor.shape[:-1], -1)
        writer.add_tensor(name, words, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def mislabel(source: Path, target: Path) -> None:
    """Copy a safetensors file of BF16 with every label written as F16, the bits untouched: a real importer's bug."""
    data = source.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    target.write_bytes(data[:8] + data[8:end].replace(b'"BF16"', b'"F16" ') + data[end:])


def tell(folder: Path, say: Callable[[str], None]) -> bool:
    """Run the whole story in a folder; True when every step ended as it must."""
    import torch

    ended = [_run(TRAIN, folder, say)]
    if not all(ended):
        return False
    to_gguf(folder / SOURCE, folder / IMPORT)
    mislabel(folder / SOURCE, folder / MISLABELLED)
    shutil.copy(Path(__file__).with_name("models.py"), folder / "models.py")
    ended += [_run(step, folder, say) for step in steps(cuda=torch.cuda.is_available())]
    bundle = str(next(folder.glob("evidence/bundles/*-checkpoint-import-*"), folder).relative_to(folder))
    closing = (
        DemoStep("Judge a bundle again from its own bytes, without measuring", ("evidence", "rejudge", bundle)),
        DemoStep("Ask of the same bundle what can be verified, five answers apart", ("evidence", "verify", bundle)),
        DemoStep("Show where every gate stands", ("status",)),
    )
    ended += [_run(step, folder, say) for step in closing]
    return all(ended)


def _run(step: DemoStep, folder: Path, say: Callable[[str], None]) -> bool:
    program = ("weighbridge",) if step.module == "weighbridge" else ("python", "-m", step.module)
    say(f"\n== {step.why}\n$ {shlex.join((*program, *step.words))}")
    command = (sys.executable, "-m", step.module, *step.words)
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    say((done.stdout + done.stderr).rstrip())
    expected = done.returncode == step.ends
    say(f"[exit {done.returncode}{'' if expected else f', expected {int(step.ends)}'}]")
    return expected
