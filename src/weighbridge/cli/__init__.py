"""The command line: one file a verb, imported when it is asked for, so that start-up stays cheap."""

import contextlib
import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from weighbridge import __version__
from weighbridge.cli.options import Resolved, coloured, fit_encoding, leave_unread, on_github, tell
from weighbridge.core import ContractError, ExitCode, PluginError, UsageError, WeighbridgeError, nearest, show_traceback
from weighbridge.core.frozen import without_blas_threads
from weighbridge.core.printable import printable

if TYPE_CHECKING:
    from weighbridge.core.plugins import Brought

VERBS = (
    *("init", "verify", "watch", "compare", "inspect", "lint", "show", "explain", "schema", "status", "ledger"),
    *("evidence", "amend", "report", "autopsy", "selftest", "doctor", "demo", "drill", "new", "trace"),
)


def brought() -> "Brought[click.Command]":
    """Return the verbs that other packages bring."""
    from weighbridge.core.plugins import Brought  # no verb of the tool needs it

    return Brought("verb", VERBS)


class Verbs(click.Group):
    """A group whose commands are modules of this package, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of use, and after them those that other packages bring and that work."""
        working = []
        for name in brought():
            with contextlib.suppress(PluginError):
                working += [name] if name in brought() else []
        return [*VERBS, *working]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a verb, imported now."""
        if cmd_name not in VERBS:
            return brought().get(cmd_name)
        command: click.Command = importlib.import_module(f"weighbridge.cli.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Resolved:
        """Refuse a verb that is not there with the nearest one that is."""
        if not (args[0] in VERBS or args[0].startswith("-") or ctx.resilient_parsing or args[0] in brought()):
            what = f"there is no verb {args[0]!r}{nearest(args[0], self.list_commands(ctx))}"
            raise UsageError("unknown-verb", what, remedy="see `weighbridge --help`")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a verb; a reader that left early has read all that it wanted."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            leave_unread()
            return None
        except SystemExit as left:  # verbs of the tool leave by an ExitCode
            if left.code or isinstance(left.code, ExitCode) or ctx.invoked_subcommand not in VERBS:
                raise
            what = "code of another package called sys.exit"
            raise PluginError("plugin-broken", what, remedy="run again without it") from None


@click.command(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExample: weighbridge compare model.safetensors model.gguf\n"
    "Example: weighbridge verify builtin:training-run --subject run=runs/a\nExample: weighbridge explain BLOCKED",
)
@click.version_option(__version__, prog_name="weighbridge")
def group() -> None:
    """Check ML training runs and checkpoints against contracts, and keep the evidence.

    A gate that did not look cannot be green: what could not be measured is BLOCKED, never passed.
    """


def main() -> None:
    """Run the command line; every problem ends in one clear message and its exit code."""
    fit_encoding()
    without_blas_threads()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs is stopped, what is half-written is removed
    if "_WEIGHBRIDGE_COMPLETE" in os.environ:  # set by the shell: click then completes, and runs nothing
        from click.shell_completion import add_completion_class

        from weighbridge.cli.completion import Bash

        add_completion_class(Bash)
    try:
        code: int = group.main(prog_name="weighbridge", standalone_mode=False, color=coloured())
    except click.exceptions.Abort:
        tell(["interrupted: unfinished work was discarded"], err=True)
        code = ExitCode.INTERRUPTED
    except click.MissingParameter as error:
        name = error.param.make_metavar(error.ctx) if error.param and error.ctx else "an argument"
        name = f"{error.param.opts[0]} {name}" if isinstance(error.param, click.Option) else name
        usage = error.ctx.get_usage().removeprefix("Usage: ") if error.ctx else ""
        tell(str(UsageError("missing-argument", f"{name} is missing", remedy=f"write: {usage}")).splitlines(), err=True)
        code = ExitCode.INVALID
    except click.ClickException as error:
        error.show()
        code = ExitCode.INVALID
    except WeighbridgeError as error:
        show_traceback(error.__cause__)
        tell(str(error).splitlines(), err=True)
        if on_github():
            from weighbridge.report import Level, github

            each = error.problems if isinstance(error, ContractError) else (error,)
            problems = [(Level.ERROR, one) for one in each]
            tell(github.of_problems(problems).splitlines(), err=True, whole=True)
            github.summarise_problems(problems)
        code = error.exit_code
    except Exception as error:  # noqa: BLE001 -- the last line of defence: a tool fault is exit 4, never a traceback
        show_traceback(error)
        what = f"internal: the tool broke ({type(error).__name__}: {error})"
        if isinstance(error, OSError) and error.strerror:
            what = f"system: {error.filename or 'standard output'}: {error.strerror}"
        tell([printable(what), "  run again with --debug for the traceback"], err=True)
        code = ExitCode.ERROR
    sys.exit(int(code or 0))
