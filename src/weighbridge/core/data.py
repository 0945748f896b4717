"""Find what ships with the tool: folders of contracts, cards, words and templates, and tables beside the code."""

import functools
from pathlib import Path
from typing import Any, Final

from weighbridge.core.errors import WeighbridgeError

FOLDERS: Final = ("contracts", "gates", "verifiers", "words", "templates", "spec")
PACKAGE: Final = Path(__file__).resolve().parents[1]


def data_path(folder: str) -> Path:
    """Find a shipped folder: in the package where it is installed, in the checkout where it is not, or raise."""
    assert folder in FOLDERS
    for path in (PACKAGE / "data" / folder, PACKAGE.parents[1] / folder):
        if path.is_dir():
            return path
    what = f"the folder {folder!r} that ships with weighbridge is missing"
    raise WeighbridgeError("installation", what, where=str(PACKAGE / "data"), remedy="install weighbridge again")


@functools.cache
def table(name: str) -> Any:
    """Read a table that stands beside the code, `ROOM/NAME`, once; its lists become tuples."""
    return _frozen(parsed((PACKAGE / f"{name}.yaml").read_bytes()))


def parsed(text: bytes) -> Any:
    """Read YAML that ships with the tool, of which the tests demand what `strict_yaml` does of that of others."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # seven times as fast, and not in every build of PyYAML
    return loader(text).get_single_data()


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(inner) for key, inner in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
