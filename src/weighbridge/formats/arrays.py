"""NumPy, imported when something of it is first used, and the kinds of arrays that annotations name."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.unsignedinteger[Any]]  # as stored
    Values: TypeAlias = NDArray[Any]
    Bytes: TypeAlias = NDArray[np.uint8]
    Floats: TypeAlias = NDArray[np.float32]
    Doubles: TypeAlias = NDArray[np.float64]
else:

    class _OnFirstUse(ModuleType):
        """A library that is imported when it is first asked for something, which is then kept."""

        def __getattr__(self, name: str) -> Any:
            self.__dict__[name] = getattr(importlib.import_module(self.__name__), name)
            return self.__dict__[name]

    np = _OnFirstUse("numpy")
    NDArray = Words = Values = Bytes = Floats = Doubles = Any

__all__ = ["Bytes", "Doubles", "Floats", "NDArray", "Values", "Words", "np"]
