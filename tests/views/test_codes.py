"""Every code that a checkpoint can be refused with is explained, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from weighbridge import views
from weighbridge.contract.codes import CODES
from weighbridge.views.codes import CHECKPOINT_CODES

FOLDER = Path(next(iter(views.__path__)))


def codes_in(module: str, pattern: str, prefix: str = "") -> set[str]:
    return {prefix + code for code in re.findall(pattern, (FOLDER / module).read_text())}


def test_the_table_is_what_the_readers_raise() -> None:
    raised = codes_in("safetensors_file.py", r'_refuse\("([a-z]+)"', "safetensors-")
    raised |= codes_in("gguf_file.py", r'\.refuse\("([a-z]+)"', "gguf-") | {"gguf-overlap", "gguf-hole"}
    raised |= codes_in("sharded.py", r'_refuse\("([a-z-]+)"|"(?:index)"') - {""} | {"index"}
    raised |= codes_in("sharded.py", r'"(checkpoint-[a-z]+)"') | codes_in("formats.py", r'"(checkpoint-[a-z]+)"')
    raised |= codes_in("mapped_file.py", r'SubjectError\(\s*"([a-z-]+)"')
    raised |= codes_in("zip_archive.py", r'refuse\("([a-z]+)"', "zip-")
    raised |= codes_in("pickle_machine.py", r'refuse\("([a-z]+)"', "pickle-")
    raised |= codes_in("torch_pickle.py", r'refuse\("([a-z]+)"', "torch-")
    raised |= codes_in("torch_file.py", r'refuse\("([a-z]+)"', "torch-")
    raised |= codes_in("torch_legacy.py", r'refuse\("([a-z]+)"', "torch-")
    raised |= codes_in("apr_file.py", r'_refuse\("([a-z]+)"', "apr-") | {"apr-trailing"}
    raised |= codes_in("npy_file.py", r'_refuse\("([a-z]+)"', "npy-")
    assert raised - set(CODES) == set(CHECKPOINT_CODES)
