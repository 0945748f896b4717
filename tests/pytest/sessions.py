"""Sessions of pytest within this one, which cost a tenth of a process of their own."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import pytest

from weighbridge.pytest import plugin


def session(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest with our plugin alone, as if started in this folder, and forget the tests that it imported."""
    out, before = io.StringIO(), set(sys.modules)
    written = contextlib.redirect_stdout(out), contextlib.redirect_stderr(out)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch, written[0], written[1]:
        patch.delenv("PYTEST_PLUGINS", raising=False)
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.setattr(sys, "argv", ["pytest", *arguments])
        patch.setattr(sys, "path", [str(folder), *sys.path])
        code = pytest.main(["-p", "no:cacheprovider", *arguments], plugins=[plugin])
    for name in {name for name in sys.modules if name.startswith("test_")} - before:
        del sys.modules[name]
    return int(code), out.getvalue()
