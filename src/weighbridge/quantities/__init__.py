"""The quantities that verifiers measure and judges read: one dataclass each, listed at the end of the file it is in."""

import importlib
from collections.abc import Iterator, Mapping

from weighbridge.core.plugins import Brought, Extended
from weighbridge.quantities.base import Quantity

# Imported until a name is found.
FILES = ("facts", "tensors", "checkpoints", "runs", "forward", "commands")


class _Quantities(Mapping[str, Quantity]):
    """The quantities of the tool itself, by name."""

    def __getitem__(self, name: str) -> Quantity:
        found = next((quantity for quantity in _each() if quantity.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (quantity.name for quantity in _each())

    def __len__(self) -> int:
        return len(list(iter(self)))


def _each() -> Iterator[Quantity]:
    for file in FILES:
        yield from importlib.import_module(f"{__name__}.{file}").QUANTITIES


OWN = _Quantities()
BROUGHT: Brought[Quantity] = Brought("quantity", OWN)
QUANTITIES: Mapping[str, Quantity] = Extended(OWN, BROUGHT)
