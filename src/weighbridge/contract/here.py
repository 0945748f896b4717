"""The contracts that stand here now, by id: what evidence and statuses are held against when they are shown."""

from __future__ import annotations

from pathlib import Path

from weighbridge.contract.load import BUILTIN, LoadedContract, builtin_names, load_contract
from weighbridge.errors import ContractError


def contracts_here(folder: Path = Path("contracts")) -> dict[str, LoadedContract]:
    """Load the starter contracts and those of a folder, which go before; what cannot be used is left out."""
    names = [*(f"{BUILTIN}{name}" for name in builtin_names()), *(str(path) for path in sorted(folder.glob("*.yaml")))]
    found: dict[str, LoadedContract] = {}
    for name in names:
        try:
            loaded = load_contract(name)
        except ContractError:
            continue
        found[loaded.contract.id] = loaded
    return found
