"""Every code that a subject can be refused with is explained, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import weighbridge
from weighbridge.cards.words import glossary

SOURCE = Path(weighbridge.__file__).parent
CODES = glossary("codes")


def codes_in(module: str, pattern: str, prefix: str = "") -> set[str]:
    (path,) = SOURCE.glob(f"**/{module}")
    return {prefix + code for code in re.findall(pattern, path.read_text())}


def test_the_table_is_what_the_readers_raise() -> None:
    raised = codes_in("safetensors_file.py", r'_refuse\("([a-z]+)"', "safetensors-")
    raised |= codes_in("gguf_file.py", r'\.refuse\("([a-z]+)"', "gguf-") | {"gguf-overlap", "gguf-hole"}
    raised |= codes_in("detect.py", r'_refuse\("([a-z-]+)"') | codes_in("detect.py", r'"(checkpoint-[a-z]+)"')
    raised |= codes_in("mapped_file.py", r'SubjectError\(\s*"([a-z-]+)"')
    raised |= codes_in("remote_file.py", r'"(remote-[a-z]+)",')
    raised |= codes_in("zip_archive.py", r'refuse\("([a-z]+)"', "zip-")
    raised |= codes_in("pickle_machine.py", r'refuse\("([a-z]+)"', "pickle-")
    raised |= codes_in("torch_file.py", r'refuse\("([a-z]+)"', "torch-")
    raised |= codes_in("dcp_directory.py", r'refuse\("([a-z]+)"', "dcp-") | {"dcp-hole"}
    raised |= codes_in("dcp_directory.py", r'refuse(?:_copy)?\("([a-z]+)"', "dcp-")
    raised |= codes_in("dcp_directory.py", r'"(dcp-[a-z]+)"')
    raised |= codes_in("apr_file.py", r'_refuse\("([a-z]+)"', "apr-") | {"apr-trailing"}
    raised |= codes_in("protobuf.py", r'refuse\("([a-z]+)"', "onnx-")
    raised |= codes_in("onnx_file.py", r'refuse\("([a-z]+)"', "onnx-")
    raised |= codes_in("npy_file.py", r'_refuse\("([a-z]+)"', "npy-")
    assert raised - set(CODES["code of a contract"]) == set(CODES["code of a checkpoint"])


def raised_in(*modules: str) -> set[str]:
    return set().union(*(codes_in(f"{module}.py", r'SubjectError\(\s*"([a-z0-9-]+)"') for module in modules))


def test_the_table_of_runs_is_what_their_readers_raise_and_what_their_page_lists() -> None:
    readers = ("units", "log_file", "json_log", "csv_log", "log_table", "run")
    formats = [path.stem for path in (SOURCE / "run_logs" / "formats").glob("*.py") if path.name != "__init__.py"]
    assert len(formats) > 8
    raised = raised_in(*readers, *formats) - {"reader-raised"}  # a package's
    assert raised == set(CODES["code of a run"])
    page = (Path(__file__).resolve().parents[2] / "spec" / "run-directory.md").read_text(encoding="utf-8")
    refused = page.partition("Refused, each with a code")[2]
    assert raised <= set(re.findall(r"`([a-z0-9-]+)`", refused))


def test_the_table_of_what_is_executed_is_what_its_views_raise() -> None:
    raised = raised_in(
        *("command", "views/model_view", "points", "stacks", "trace_file", "hugging_face", "onnx_runtime"),
        *("products", "own_weights"),
    )
    raised -= {
        *CODES["code of a measurement"],
        *CODES["code of a trace"],
    }  # which tests/forward/test_trace_file.py holds
    assert raised == set(CODES["code of a command or model"])
