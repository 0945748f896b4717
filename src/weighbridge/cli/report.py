"""`weighbridge report`: draw what bundles came to as one page for a browser."""

from __future__ import annotations

from pathlib import Path

import click

from weighbridge.cli.options import BUNDLE, PATH, Paths, tell, verb
from weighbridge.core import printable
from weighbridge.evidence.disk import disk_error, replace_file

EXAMPLES = ("evidence/bundles/* -o report.html", "BUNDLE --run runs/b --base runs/a -o report.html")


@verb("report", "Draw bundles as one page for a browser.", *EXAMPLES)
@click.argument("bundles", nargs=-1, required=True, type=BUNDLE)
@click.option("--run", type=PATH, metavar="DIR", help="The run that was sealed: draws what it logged of layers.")
@click.option("--base", type=PATH, metavar="DIR", help="An earlier run to hold it against.")
@click.option("-o", "--output", type=PATH, default=Path("report.html"), show_default=True, help="The file to write.")
def command(bundles: Paths, run: Path | None, base: Path | None, output: Path) -> None:
    """Draw BUNDLES as one HTML file that needs no network, no script and no style. Needs weighbridge[report].

    Every bundle is judged again first; one that does not hold is refused, and no page is written.

    Exit 0: written; 4: a bundle, a run or the disk refused.
    """
    from weighbridge.page.one_file import page
    from weighbridge.page.sources import sources

    data = page(sources(bundles, run, base))
    try:
        replace_file(output, data)
    except OSError as problem:
        raise disk_error(problem, "the page", output) from None
    tell([printable(f"{output}: {len(data):,} bytes, {len(bundles)} bundle{'s' * (len(bundles) > 1)} judged again")])
