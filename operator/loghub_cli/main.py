"""The program ``loghub``: finds a command, runs it, and turns errors into one line and an exit status.

Exit status: 0 success; 1 failure; 2 invalid input; ``loghub fsck --help`` lists its own. A mistake of the
user, a log service that refuses or does not answer, and a reader that has ended give no traceback.
"""

import importlib
import io
import os
import sys
from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

import click

from loghub import __version__
from loghub.client.target import BadEndpoint
from loghub.extras import MissingPackageError, needs
from loghub.wire.errors import LogHubException
from loghub_cli.commands import CommandGroup

DONE, FAILED, MISUSED = 0, 1, 2
PROGRAM = "loghub"

# Command -> its module here and what it does. Only the module of the command that runs is imported: some need
# a second for their models, too long to wait for at each Tab.
COMMANDS = {
    "up": ("local", "run a LogHubConsumerGroup with local worker processes"),
    "down": ("local", "stop a group's workers and delete or retain the group according to deletionPolicy"),
    "status": ("local", "show the status of groups"),
    "check": ("try_out", "check a LogHubConsumerGroup as a worker does at its start, without a log service"),
    "try": ("try_out", "run the pipeline of a LogHubConsumerGroup over real logs, without a group or a sink"),
    "serve": ("local", "run the embedded LogHub service in the foreground"),
    "project": ("catalog", "create, list, show and delete projects"),
    "logstore": ("catalog", "create, list, show and delete logstores"),
    "shard": ("catalog", "list, show, split, merge and delete shards"),
    "group": ("group", "create, list, show, change and delete consumer groups; show and set checkpoints"),
    "subscription": ("subscription", "create, list, show, change, move and delete subscriptions"),
    "put": ("put", "write lines of a file or of standard input to a logstore"),
    "pull": ("read", "print logs of one shard, from one position to another"),
    "query": ("query", "run SQL over the logs that a logstore received lately, without a worker"),
    "schema": ("schema", "show the keys of a logstore's logs, their types, and a SELECT of them"),
    "tail": ("read", "print new logs of all shards of a logstore as they arrive"),
    "lag": ("lag", "show how far consumer groups and subscriptions are behind"),
    "fsck": ("local", "list what is wrong with a data folder of the embedded service, and repair it"),
    "completion": ("completion", "print the script that completes commands and names in a shell"),
}
# Module -> the extra that it needs, if that is not `local`.
_EXTRAS = {"query": "query", "schema": "query"}


class _ReaderIsGone(Exception):  # noqa: N818 - says what happened
    """The program that reads our output has ended, as in ``loghub tail | head``."""


class EndsWithItsReader(click.Group):
    """A program whose output may be read only in part."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # click's own answer is status 1, which is no failure of ours
            raise _ReaderIsGone from None


class Commands(EndsWithItsReader, CommandGroup):
    """The commands, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        name = COMMANDS[cmd_name][0]
        with needs(f"loghub-cli[{_EXTRAS.get(name, 'local')}]", f"{PROGRAM} {cmd_name}"):
            module = importlib.import_module(f"loghub_cli.{name}")
        # A command may have a name that no function can have.
        command: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return command

    def sentence(self, ctx: click.Context, name: str) -> str:  # noqa: ARG002 - imports no command
        return COMMANDS[name][1]


@click.command(cls=Commands, name=PROGRAM, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
def root() -> None:
    """Projects, logstores, shards, logs and consumer groups of LogHub, at the real SLS or an embedded
    service; and consumer groups on this machine.

    Each command has --help. The endpoint and the access key come from options, the environment, a profile, or
    the service that runs on this machine (docs/command-line.md).
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status; raises SystemExit for an invalid command line."""
    return run(root, PROGRAM, arguments)


def run(command: click.Command, program: str, arguments: Sequence[str] | None) -> int:
    """Runs a command of a program, and turns its errors into a line and an exit status: nobody sees a
    traceback. Raises SystemExit for an invalid command line."""
    if sys.stdout is None:  # so says Python if it was started with a closed one
        message = "standard output is closed: redirect it to a file, or to /dev/null"
        return _complain(f"{program}: {message}", FAILED)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # logs may have what the terminal's encoding lacks
    try:
        status = command.main(
            args=None if arguments is None else list(arguments), prog_name=program, standalone_mode=False
        )
        sys.stdout.flush()
    except click.UsageError as error:
        error.show()
        raise SystemExit(MISUSED) from None
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return FAILED
    except (_ReaderIsGone, BrokenPipeError):
        return _to_nowhere()
    except BadEndpoint as error:
        return _complain(f"{program}: {error}", MISUSED)
    except MissingPackageError as error:
        return _complain(str(error), FAILED)
    except (LogHubException, OSError) as error:
        return _complain(f"{program}: {error}", FAILED)
    return status if isinstance(status, int) else DONE


def _complain(text: str, status: int) -> int:
    click.echo(text, err=True)
    return status


def _to_nowhere() -> int:
    """The reader has what it wanted. What is left in the buffer must go nowhere: at its end the interpreter
    would write it, and report that it could not."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return DONE
