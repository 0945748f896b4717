"""`weighbridge demo`: train, import, compare and verify a small model, each step by a command."""

import datetime as dt
import importlib.util
import sys
from pathlib import Path

import click

from weighbridge.cli import options
from weighbridge.cli.options import verb
from weighbridge.core import ExitCode, UsageError
from weighbridge.core.project import local, make_local

FOLDER = "The folder to create and work in.  [default: .weighbridge/demo-TIME]"
FILES = "Only write small files to try the commands on into this new folder, some of them wrong. Needs no PyTorch."


@verb("demo", "Train, import, compare and verify a small model.", "--dir /tmp/weighbridge-demo")
@click.option("--dir", "folder", type=click.Path(path_type=Path, file_okay=False), help=FOLDER)
@click.option("--files", type=click.Path(path_type=Path, file_okay=False), help=FILES)
def command(folder: Path | None, files: Path | None) -> None:
    """Train, import, compare and verify a small model, and print each command. Needs weighbridge[torch]."""
    if files is not None:
        from weighbridge.demo.files import write

        write(new_folder(files))
        options.tell(sorted(str(path) for path in files.rglob("*") if path.is_file()))
        return
    if not all(map(importlib.util.find_spec, ("torch", "safetensors"))):
        what = "the demo trains a model, and PyTorch or safetensors is not installed"
        raise UsageError("no-torch", what, remedy="pip install 'weighbridge[torch]'")
    from weighbridge.demo import tell

    folder = new_folder(folder, "demo")
    whole = tell(folder, lambda text: options.tell(text.splitlines()))
    places = f"bundles: {folder}/evidence/bundles", f"ledger:  {folder}/evidence/ledger"
    options.tell(("", *places, f"status:  cd {folder} && weighbridge status"), whole=True)
    options.tell(["every step ended as expected" if whole else "a step did not end as expected: see above"])
    sys.exit(ExitCode.PASSED if whole else ExitCode.FAILED)


def new_folder(given: Path | None, name: str = "") -> Path:
    """Make the folder that is given, else one in the project's store with a name and the time of day."""
    if given is None:
        make_local(local())
    folder = given or local() / f"{name}-{dt.datetime.now():%Y%m%d-%H%M%S}"  # noqa: DTZ005 -- a folder's name for the person who waits
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        what = "the folder is there already"
        raise UsageError("folder-exists", what, where=str(folder), remedy="name a new one") from None
    return folder
