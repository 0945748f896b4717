"""One id and version is one content: a promise that changes gets a new version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from weighbridge.contract.load import LoadedContract
from weighbridge.contract.problems import Found


def reused(contracts: Iterable[tuple[LoadedContract, str]], known: Mapping[tuple[str, str], str]) -> Iterator[Found]:
    """Find contracts whose id and version stand for another content already.

    `contracts` gives each with the digest of its resolved form; `known` maps (id, version) to the digest that a
    ledger has on record. Of two files with one id and version and two contents, the later one is told.
    """
    first: dict[tuple[str, str], tuple[str, str]] = {key: (digest, "the ledger") for key, digest in known.items()}
    for loaded, digest in contracts:
        contract = loaded.contract
        before, where = first.setdefault((contract.id, contract.version), (digest, str(loaded.path)))
        if before != digest:
            what = f"{contract.id} {contract.version} has another content in {where}"
            yield loaded.layered.found(("version",), "reused-version", what, "raise the version")
