"""The entry points ``kubectl-loghub``, which `kubectl loghub` starts, and ``kubectl_complete-loghub``, which
the completion of `kubectl` starts."""

import sys
from collections.abc import Sequence

import click
from click.shell_completion import ShellComplete

from loghub import __version__
from loghub_cli.commands import CommandGroup
from loghub_cli.main import EndsWithItsReader, run
from loghub_cli.plugin.change import pause, reset, restart, resume
from loghub_cli.plugin.inspect import logs, report, shell
from loghub_cli.plugin.show import lag, plan, shards, status, why

PROGRAM = "kubectl loghub"
COMMANDS = (status, why, lag, shards, plan, pause, resume, restart, reset, logs, shell, report)


class PluginCommands(EndsWithItsReader, CommandGroup):
    """In the order of the list, not of the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return [str(command.name) for command in COMMANDS]


@click.command(cls=PluginCommands, name=PROGRAM, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
def root() -> None:
    """LogHubConsumerGroups of a cluster: what they do, what is wrong with them, and changes of them.

    kubectl makes all requests, with its contexts and logins. Exit status: 0 done; 1 not done; 2 a
    wrong command line; 3 no such group, or no operator; 4 not permitted; 5 no kubectl, or no answer.
    """


for _command in COMMANDS:
    root.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status; raises SystemExit for an invalid command line."""
    return run(root, PROGRAM, arguments)


_NO_FILES = ":4"  # of kubectl's completion: complete no names of files


def complete(arguments: Sequence[str] | None = None) -> int:
    """Prints what may stand in place of the last argument, as the completion of `kubectl` reads it."""
    *before, incomplete = (sys.argv[1:] if arguments is None else arguments) or [""]
    for item in ShellComplete(root, {}, PROGRAM, "").get_completions(list(before), incomplete):
        click.echo(item.value)
    click.echo(_NO_FILES)
    return 0
