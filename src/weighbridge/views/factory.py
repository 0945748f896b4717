"""Run the Python factory that a person named as a subject; never reached from a contract alone."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType

from weighbridge.core import SubjectError, dataclass, is_file, nearest
from weighbridge.forward.stacks import has_cuda


@dataclass(frozen=True, slots=True)
class Factory:
    """A function in a file or a module, not yet imported."""

    place: str
    function: str

    @classmethod
    def named(cls, spec: str) -> Factory:
        """Read `module:function` or `path/to/file.py:function`; refuse with `factory-spec` or `no-file`."""
        place, _, function = spec.rpartition(":")
        if not place or not function.isidentifier():
            remedy = "write module:function or path/to/file.py:function"
            raise SubjectError("factory-spec", f"{spec[:80]!r} names no factory", remedy=remedy)
        factory = cls(place, function)
        if factory.in_file and not is_file(Path(place)):
            raise SubjectError("no-file", "no such file", where=place, remedy="check the path before the colon")
        return factory

    @property
    def spec(self) -> str:
        """Return its name, as the person gave it."""
        return f"{self.place}:{self.function}"

    @property
    def in_file(self) -> bool:
        """Return whether it is named by a file, not a module."""
        return self.place.endswith(".py")

    def make(self) -> object | None:
        """Call it; None where it wants CUDA and there is none; refuse with `no-factory` or `factory-raised`."""
        # It may import its neighbours, as `python file.py` and `python -m module` would.
        added = str(Path(self.place).resolve().parent if self.in_file else Path.cwd())
        sys.path.insert(0, added)
        try:
            return self._found()()
        except (SubjectError, KeyboardInterrupt):
            raise
        except BaseException as problem:
            # Its own code may even call sys.exit(0), which must not end this process as a pass.
            words = str(problem).lower()
            if ("cuda" in words or "nvidia" in words) and not has_cuda():
                return None
            what = f"the factory raised {type(problem).__name__}"
            remedy = "call it from Python; --debug shows the traceback"
            raise SubjectError("factory-raised", what, where=self.spec, remedy=remedy) from problem
        finally:
            sys.path.remove(added)

    def digest(self, *others: Path | None) -> Mapping[str, str]:
        """Digest its source file, once known, and other files: name → sha256."""
        module = sys.modules.get(self.place)
        source = self.place if self.in_file else module.__file__ if module is not None else None
        digests = {}
        for path in filter(None, (Path(source) if source else None, *others)):
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
        return digests

    def _found(self) -> Callable[[], object]:
        module = _from_file(Path(self.place)) if self.in_file else importlib.import_module(self.place)
        found = getattr(module, self.function, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
        own = (item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__)
        near = nearest(self.function, [item.__name__ for item in own if isinstance(item, FunctionType)])
        raise SubjectError("no-factory", f"no function {self.function!r}{near}", where=self.place)


def _from_file(path: Path) -> ModuleType:
    """Import one file under a name of its own, so that two files of one name stay apart."""
    name = f"weighbridge_factory_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
