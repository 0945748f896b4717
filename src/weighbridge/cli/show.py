"""`weighbridge show`: print a starter contract as it ships, or what any contract comes to."""

from typing import Any

import click

from weighbridge.cli.options import tell, verb
from weighbridge.contract import strict_yaml
from weighbridge.contract.load import BUILTIN, builtin_names, load_contract, locate, read_parameters, substitute
from weighbridge.contract.strict_yaml import block
from weighbridge.core import ContractError, printable, read_regular_file

EXAMPLES = ("builtin:model-import", "contracts/import.yaml --resolved")


@verb("show", "Print a contract, as it ships or as it comes out.", *EXAMPLES)
@click.argument("contract", required=False)
@click.option("--resolved", is_flag=True, help="Fill in extends, params and defaults; say where each value is written.")
def command(contract: str | None, *, resolved: bool) -> None:
    """Print CONTRACT, a file or builtin:NAME, to read or to copy.

    Without CONTRACT, list those that ship with the tool.
    """
    if contract is None:
        tell(f"{BUILTIN}{name:<22} {load_contract(f'{BUILTIN}{name}').contract.title}" for name in builtin_names())
    elif resolved:
        loaded = load_contract(contract)
        layered = substitute(loaded.layered, read_parameters(loaded.layered, {}))
        filled = {key: value for key, value in layered.data.items() if key not in ("extends", "params")}
        gates = []
        for gate, decl in zip(filled.get("gates", ()), loaded.contract.gates, strict=True):
            whole: dict[str, Any] = {"with": decl.limits, "measure": decl.measure}
            gates.append({**gate, **{key: {**gate.get(key, {}), **values} for key, values in whole.items() if values}})
        filled["gates"] = gates

        def written(path: strict_yaml.Path) -> str:
            if path[0] == "gates" and len(path) > 3 and path[3] not in layered.data["gates"][path[1]].get(path[2], {}):
                return "default"
            at = layered.found(path, "", "")
            return f"{at.file}:{at.line}"

        tell(block(filled, written), whole=True)
    else:
        text = read_regular_file(locate(contract), strict_yaml.MAX_BYTES, ContractError)
        tell(map(printable, text.decode("utf-8", errors="replace").splitlines()), whole=True)
