"""`weighbridge report`: draw what bundles came to as one page for a browser."""

from pathlib import Path

import click

from weighbridge.cli.contracts import contracts_named
from weighbridge.cli.options import BUNDLE, PATH, Paths, Texts, repeated, settings, tell, verb
from weighbridge.core import UsageError, printable
from weighbridge.evidence.disk import disk_errors, replace_file

CONTRACT = "builtin:training-run"
EXAMPLES = ("BUNDLE --run runs/b --base runs/a", "--run runs/b --live")


@verb("report", "Draw bundles as one page for a browser.", *EXAMPLES)
@click.argument("bundles", nargs=-1, type=BUNDLE)
@click.option("--run", type=PATH, metavar="DIR", help="The run that was sealed: draws what it logged of layers.")
@click.option("--live", is_flag=True, help="Serve the page of a run that goes on to this machine, until Ctrl-C.")
@repeated("--contract", "contracts", "CONTRACT", f"With --live: what the run is judged by.  [default: {CONTRACT}]")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="With --live: override a parameter.")
@click.option("--port", type=click.IntRange(0, 65535), help="With --live: the port.  [default: one that is free]")
@click.option("--base", type=PATH, metavar="DIR", help="An earlier run to hold it against.")
@click.option("-o", "--output", type=PATH, help="The file to write.  [default: report.html]")
def command(
    bundles: Paths, run: Path | None, base: Path | None, output: Path | None, *, live: bool, contracts: Texts,
    params: Texts, port: int | None,
) -> None:  # fmt: skip
    """Draw BUNDLES as one HTML file that needs no network, no script and no style. Needs weighbridge[report].

    Example: weighbridge report evidence/bundles/* -o report.html

    Every bundle is judged again first; one that does not hold is refused, and no page is written.

    With --live and --run the page of a run that goes on is served at 127.0.0.1 alone, and drawn anew as rows come.

    Exit 0: written, or served until Ctrl-C; 2: usage; 4: a bundle, a run or the disk refused.
    """
    if live:
        if bundles or output or not run:
            raise UsageError("live-of", "--live serves a run, and writes no file", remedy="write: --live --run RUN")
        from weighbridge.page.live import Drawing, serve

        names = tuple(contracts_named(contracts)) or (CONTRACT,)
        serve(Drawing(names, settings(params, "param"), run, base), port or 0, lambda line: tell([line]))
        return
    if given := [name for name, one in {"contract": contracts, "param": params, "port": port}.items() if one]:
        raise UsageError("live-of", f"--{given[0]} is of a page that is live", remedy="write --live, or leave it out")
    if not bundles:
        raise UsageError("missing-argument", "BUNDLES is missing", remedy="name one, or a run: --live --run RUN")
    output = output or Path("report.html")
    from weighbridge.page.one_file import page
    from weighbridge.page.sources import sources

    data = page(sources(bundles, run, base))
    with disk_errors("the page", output):
        replace_file(output, data)
    tell([printable(f"{output}: {len(data):,} bytes, {len(bundles)} bundle{'s' * (len(bundles) > 1)} judged again")])
