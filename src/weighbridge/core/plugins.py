"""What other packages bring by their entry points, each known by its type; what is broken is an error that names it."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Collection, Container, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeVar

from weighbridge.core.canonical import dumps, sha256
from weighbridge.core.errors import FAULTS, PluginError
from weighbridge.core.frozen import dataclass

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")
PREFIX: Final = "weighbridge."
SHOWN: Final = 12  # digits of a digest


class Form(NamedTuple):
    """One thing that a package may bring: the group of its entry point, its class, and the field with its name."""

    group: str
    of: str
    named: str = "name"


# The classes by name, for a short command imports none of them.
FORMS: Final[Mapping[str, Form]] = {
    "kind": Form("gates", "weighbridge.clauses.kind.Kind"),
    "quantity": Form("gates", "weighbridge.quantities.base.Quantity"),
    "verifier": Form("verifiers", "weighbridge.verifiers.verifier.Verifier", named="quantity"),
    "reader of checkpoints": Form("formats", "weighbridge.formats.detect.Format"),
    "reader of run logs": Form("formats", "weighbridge.run_logs.log_table.LogFormat"),
    "report format": Form("formats", "weighbridge.report.formats.ReportFormat"),
    "verb": Form("formats", "click.core.Command"),
}
GROUPS: Final = tuple(dict.fromkeys(form.group for form in FORMS.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One name that a package brings, with the package's version and the digest of its files; `what` is of `FORMS`."""

    what: str
    name: str
    package: str
    version: str
    digest: str

    @property
    def of(self) -> str:
        """Return the package with its version and digest."""
        return f"{self.package} {self.version} (digest {self.digest[:SHOWN]}…)"

    def __str__(self) -> str:
        return f"{self.what} {self.name}"


@dataclass(frozen=True, slots=True)
class Brought(Mapping[str, T]):
    """What packages bring to one table, by name: imported where it is asked for, all of a group where it is listed."""

    what: str
    own: Container[str] = ()  # names of the tool itself

    def __getitem__(self, name: str) -> T:
        if (key := (self.what, name)) not in _LOADED:
            entry = self.entry(name)
            _LOADED[key] = entry, entry.load()
        found: T = _LOADED[key][1]
        return found

    def __iter__(self) -> Iterator[str]:
        group = FORMS[self.what].group
        named = ((name, entries) for (of, name), entries in entry_points().items() if of == group)
        return (name for name, entries in named if name not in self.own and any(map(self._may_be, entries)))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _may_be(self, entry: EntryPoint) -> bool:
        try:
            return what_is(entry) == self.what
        except PluginError:
            return True

    def entry(self, name: str) -> EntryPoint:
        """Return where a name comes from; a KeyError where no package brings it, `plugin-…` where it cannot be used."""
        entries = entry_points().get((FORMS[self.what].group, name), ())
        if not (found := [entry for entry in entries if what_is(entry) == self.what]):
            raise KeyError(name)
        if name in self.own:
            _refuse(found[0], self.what, "plugin-name", "is a name of weighbridge itself, which nothing can replace")
        if len(found) > 1:
            _refuse(found[0], self.what, "plugin-twice", f"is brought by {package(found[1])}, too")
        called = getattr(found[0].load(), FORMS[self.what].named)
        if called != name:
            _refuse(found[0], self.what, "plugin-shape", f"calls itself {called!r}")
        return found[0]

    def beside(self, name: str, file: str) -> Path:
        """Return a file beside the module that brings a name, or raise `plugin-card`, or as `entry` does."""
        entry = self.entry(name)
        path = _file_of(entry.module).parent / file
        if not path.is_file():
            _refuse(entry, self.what, "plugin-card", f"lacks {file} beside its module {entry.module}")
        return path


_LOADED: dict[tuple[str, str], tuple[EntryPoint, Any]] = {}


def what_is(entry: EntryPoint) -> str:
    """Import what an entry point names, and return which of the `FORMS` it is, or raise `plugin-broken` or `-shape`."""
    group = entry.group.removeprefix(PREFIX)
    try:
        found = type(entry.load())
    except FAULTS as error:  # whatever importing somebody's code raises
        what = f"cannot be imported: {type(error).__name__}: {error}"
        _refuse(entry, group.removesuffix("s"), "plugin-broken", what)
    forms = {form.of: what for what, form in FORMS.items() if form.group == group}
    what = next((forms[name] for one in found.__mro__ if (name := f"{one.__module__}.{one.__name__}") in forms), "")
    if not what:
        wanted = " or ".join(name.rpartition(".")[2] for name in forms)
        _refuse(entry, group.removesuffix("s"), "plugin-shape", f"is of the type {found.__name__}, not {wanted}")
    return what


def _refuse(entry: EntryPoint, what: str, code: str, why: str) -> NoReturn:
    problem = f"{package(entry)} brings the {what} {entry.name!r}, which {why}"
    raise PluginError(code, problem, where=entry.value, remedy=f"mend that package, or: pip uninstall {_name(entry)}")


@functools.cache
def entry_points() -> Mapping[tuple[str, str], tuple[EntryPoint, ...]]:
    """Return the entry points of all installed packages that are for this tool, by group and name, read once."""
    import importlib.metadata  # costs more than all else that a short command imports

    found: dict[tuple[str, str], tuple[EntryPoint, ...]] = {}
    installed = importlib.metadata.entry_points()
    for group in sorted(name for name in installed.groups if name.startswith(PREFIX)):
        for entry in sorted(installed.select(group=group), key=lambda one: (one.name, package(one))):
            key = (group.removeprefix(PREFIX), entry.name)
            found[key] = (*found.get(key, ()), entry)
    return found


def used(what: str, names: Collection[str]) -> tuple[Plugin, ...]:
    """Return those of these names that were brought by a package and imported, as they are to be sealed."""
    return tuple(_identity(what, _LOADED[what, name][0]) for name in sorted(set(names)) if (what, name) in _LOADED)


def here(sealed: Plugin) -> Plugin | None:
    """Return what is installed here in the place of a sealed plug-in; None where nothing or more than one thing is."""
    form = FORMS.get(sealed.what)
    found = entry_points().get((form.group, sealed.name), ()) if form else ()
    return _identity(sealed.what, found[0]) if len(found) == 1 else None


def changed(sealed: Plugin) -> str:
    """Return what to install or mend so that all is as it was sealed; empty where it is."""
    if (found := here(sealed)) is None:
        return f"{sealed} comes with {sealed.of}: install it"
    try:
        what_is(entry_points()[FORMS[sealed.what].group, sealed.name][0])
    except PluginError as broken:
        return broken.what
    return "" if found == sealed else f"{sealed} came with {sealed.of}, here it is of {found.of}"


def _identity(what: str, entry: EntryPoint) -> Plugin:
    of, _, version = package(entry).rpartition(" ")
    return Plugin(what=what, name=entry.name, package=of, version=version, digest=_digest(entry.module))


@functools.cache
def _digest(module: str) -> str:
    """Digest every file of the outermost package that a module is in, or the module itself; nothing compiled."""
    parts = module.split(".")
    names = (".".join(parts[: end + 1]) for end in range(len(parts)))
    top = next((path for name in names if (path := _origin(name)) is not None), None) or _file_of(module)
    files = [top] if top.name != "__init__.py" else [path for path in top.parent.rglob("*") if path.is_file()]
    kept = (path for path in files if "__pycache__" not in path.parts)
    return sha256(dumps({path.relative_to(top.parent).as_posix(): sha256(path.read_bytes()) for path in kept}))


def _file_of(module: str) -> Path:
    if (path := _origin(module)) is None:
        raise PluginError("plugin-broken", "there is no file of this module", where=module, remedy="install it again")
    return path


def _origin(module: str) -> Path | None:
    import importlib.util

    try:
        spec = importlib.util.find_spec(module)
    except FAULTS:  # it imports the packages around the module
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None and spec.has_location else None


def _name(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unnamed package"


def package(entry: EntryPoint) -> str:
    """Return the package of an entry point with its version."""
    return f"{_name(entry)} {entry.dist.version if entry.dist else '?'}"


# --- Tables whose values are imported when first asked for, so that no command starts with what it never uses ---------


@dataclass(frozen=True, slots=True)
class OnDemand(Mapping[K, V]):
    """Values that modules of a package hold under one name, or in a table of that name; `modules` is typed by hand."""

    package: str
    name: str
    modules: Mapping[K, str]

    def __getitem__(self, key: K) -> V:
        found = getattr(importlib.import_module(f"{self.package}.{self.modules[key]}"), self.name)
        value: V = found[key] if isinstance(found, dict) else found
        return value

    def __contains__(self, key: object) -> bool:
        return key in self.modules

    def __iter__(self) -> Iterator[K]:
        return iter(self.modules)

    def __len__(self) -> int:
        return len(self.modules)


@dataclass(frozen=True, slots=True)
class Extended(Mapping[K, V]):
    """A table of the tool, and after it what other packages bring, who are asked only for what it lacks."""

    own: Mapping[K, V]
    brought: Mapping[K, V]

    def __getitem__(self, key: K) -> V:
        return self.own[key] if key in self.own else self.brought[key]

    def __iter__(self) -> Iterator[K]:
        yield from self.own
        yield from self.brought

    def __len__(self) -> int:
        return len(self.own) + len(self.brought)
