"""Contracts and gates for ML training runs and checkpoints: a gate that did not look cannot be green.

What Python code calls stands in `__all__`; each name is imported when it is first used. spec/python-api.md shows them.
"""

TYPE_CHECKING = False  # as type checkers know it; importing typing takes longer than all else here
if TYPE_CHECKING:
    from weighbridge.api import compare, inspect, rejudge, verify
    from weighbridge.contract.load import load_contract
    from weighbridge.core import WeighbridgeError, __version__
    from weighbridge.recorder import Recorder

__all__ = [
    "Recorder", "WeighbridgeError", "__version__", "compare", "inspect", "load_contract", "rejudge", "verify",
]  # fmt: skip

_HOMES = {
    "compare": "api", "inspect": "api", "rejudge": "api", "verify": "api", "load_contract": "contract.load",
    "Recorder": "recorder", "WeighbridgeError": "core", "__version__": "core",
}  # fmt: skip


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return one of the names of `__all__`, imported now."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
