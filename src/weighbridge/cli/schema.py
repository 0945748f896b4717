"""`weighbridge schema`: print the JSON Schema of contracts, and the page of quantities, from what the code holds."""

import json

import click

from weighbridge.cli.options import tell, verb
from weighbridge.contract.document import contract_schema

OF_REPORT = "Print the schema of that report of `verify`; of jsonl, that of a line."


@verb("schema", "Print the JSON Schema of contracts.", "> contract.schema.json")
@click.option("--quantities", is_flag=True, help="Print every field of every quantity, as a page in Markdown.")
@click.option("--report", "form", type=click.Choice(("json", "jsonl")), help=OF_REPORT)
@click.option("--waivers", is_flag=True, help="Print the schema of a file of waivers.")
def command(*, quantities: bool, form: str | None, waivers: bool) -> None:
    """Print the JSON Schema (2020-12) of contracts, for editors and validators, or of waivers or a report."""
    if quantities:
        from weighbridge.quantities.page import page

        tell(page().splitlines(), whole=True)
        return
    if form:
        from weighbridge.report.machine import report_schema

        body = report_schema(form)
    elif waivers:
        from weighbridge.lanes.waivers import waivers_schema

        body = waivers_schema()
    else:
        body = contract_schema()
    tell([json.dumps(body, indent=2, ensure_ascii=False)], whole=True)
