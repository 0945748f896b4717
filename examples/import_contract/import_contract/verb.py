"""`weighbridge import-contract`: read a contract of another style into a draft of ours."""

from __future__ import annotations

import re
from pathlib import Path

import click

from weighbridge.cli.options import tell
from weighbridge.core.errors import ContractError, UsageError


@click.command(
    "import-contract",
    short_help="Read a contract with rules in prose into a draft.",
    epilog="\b\nExample: weighbridge import-contract training-loop-v1.yaml -o draft.yaml",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Where the draft is written. Default: printed.")
def command(file: Path, out: Path | None) -> None:
    """Read FILE, a contract with rules in prose, into a draft of ours.

    FILE has `gates`, `falsification_tests`, `invariants` or
    `proof_obligations`. Ids, titles and bindings map, and command lines become gates whose subjects
    are left to be bound. What does not map is listed with its line and the
    reason; nothing is guessed. The draft is where the work begins.

    Exit 0: written; 2: FILE cannot be read, or the draft is there already.
    """
    from import_contract.foreign import drafted
    from weighbridge.contract import strict_yaml
    from weighbridge.contract.load import read_contract
    from weighbridge.core.local_files import lexists, read_regular_file
    from weighbridge.evidence.disk import write_new

    if out is not None and lexists(out):
        raise UsageError("file-exists", "is there already", where=str(out), remedy="name another file, or delete it")
    document, problems = strict_yaml.read(read_regular_file(file, strict_yaml.MAX_BYTES, ContractError), str(file))
    if document is None or not isinstance(document.data, dict):
        if problems:
            raise strict_yaml.collected(problems)
        what, remedy = "the top of it is no mapping, so it is no contract", "name a contract"
        raise UsageError("foreign-form", what, where=str(file), remedy=remedy)
    draft = drafted(document, re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "imported")
    text = draft.text()
    read_contract(text.encode(), str(out or "the draft"), {})
    listed = [f"{one.where}: does not map: {one.what}" for one in problems]
    does = {True: "maps", False: "does not map"}
    listed += [f"{document.at(one.path, at_key=True)}: {does[one.maps]}: {one.what}" for one in draft.lines]
    if out is None:
        tell([text.rstrip("\n")], whole=True)
    else:
        write_new(out, text.encode())
    tell(listed, err=out is None)
    mapped = sum(one.maps for one in draft.lines)
    left = len(listed) - mapped
    bound = "".join(f" --subject {name}=…" for name in draft.subjects)
    tell(
        [f"gates: {len(draft.gates)}; {mapped} places map, {left} do not", f"bind by hand:{bound or ' nothing'}"],
        err=out is None,
    )
