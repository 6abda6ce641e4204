"""``loghub``: consumer groups on this machine.

What for: the command line to `loghub_operator.local.up`; wrong input to one clear message. What
it must not know: how a group is run. Read next: `loghub_operator.local.up`.

Exit status: 0 done; 1 it could not be done; 2 wrong input. The access key of a real endpoint is
taken from LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET (LOGHUB_SECURITY_TOKEN for STS).
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from loghub.client import target
from loghub_operator.api import InvalidResourceError
from loghub_operator.local.places import InUseError, Root
from loghub_operator.local.service import ServiceStartError
from loghub_operator.local.show import show_status
from loghub_operator.local.up import DownOptions, Refused, StartFailed, UpOptions, down, serve, up

DONE, FAILED, MISUSED = 0, 1, 2
MOST_SHARDS = 256


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    given = _parser().parse_args(arguments)
    given.root = Root(given.state_dir.absolute()) if given.state_dir else Root.default(os.environ)
    try:
        status: int = given.run(given)
    except (InvalidResourceError, Refused) as error:
        return _complain(str(error), MISUSED)
    except (StartFailed, InUseError, ServiceStartError, OSError) as error:
        return _complain(f"loghub: {error}", FAILED)
    except KeyboardInterrupt:
        return FAILED
    return status


def _complain(text: str, status: int) -> int:
    print(text, file=sys.stderr)  # noqa: T201 - the program's output
    return status


def _up(given: argparse.Namespace) -> int:
    options = UpOptions(
        root=given.root,
        file=given.file,
        name=given.name,
        endpoint=given.endpoint,
        create=given.create,
        shards=given.shards,
        until=given.until,
        live=sys.stdout.isatty() and not given.plain,
    )
    return asyncio.run(up(options))


def _down(given: argparse.Namespace) -> int:
    options = DownOptions(root=given.root, file=given.file, name=given.name, endpoint=given.endpoint)
    return asyncio.run(down(options))


def _status(given: argparse.Namespace) -> int:
    return show_status(given.root, given.name, as_json=given.json)


def _serve(given: argparse.Namespace) -> int:
    return serve(given.root, given.listen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loghub", description="LogHub consumer groups on this machine")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    one = _command(commands, "up", "run a LogHubConsumerGroup, workers as local processes", _up)
    one.add_argument("-f", "--file", type=Path, required=True, help="YAML file; read again when it is saved")
    _common(one)
    one.add_argument(
        "--create", action="store_true", help="make the project and logstore if they are missing"
    )
    one.add_argument("--shards", type=_shards, default=4, help="of a logstore made by --create (default 4)")
    one.add_argument("--until", choices=("running", "caught-up"), help="stop as soon as this is so")
    one.add_argument("--plain", action="store_true", help="lines instead of the live view")
    two = _command(
        commands, "down", "workers leave the group; it goes or stays as its deletionPolicy says", _down
    )
    two.add_argument("-f", "--file", type=Path, help="YAML file that names the group")
    _common(two)
    three = _command(commands, "status", "what is known of the groups", _status)
    three.add_argument("name", nargs="?", help="only this one, in full")
    three.add_argument("--json", action="store_true", help="the status as JSON")
    four = _command(commands, "serve", "run the embedded LogHub service in the foreground", _serve)
    four.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="default: a free port")
    return parser


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, run: object
) -> argparse.ArgumentParser:
    made = commands.add_parser(name, help=text, description=text)
    made.set_defaults(run=run)
    made.add_argument(
        "--state-dir", type=Path, help="default: $XDG_STATE_HOME/loghub or ~/.local/state/loghub"
    )
    return made


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", help="which LogHubConsumerGroup, where the file has several")
    parser.add_argument(
        "--endpoint", type=_endpoint, metavar="URL",
        help="what `endpoint: embedded` stands for; default: this machine's own service",
    )  # fmt: skip


def _endpoint(text: str) -> str:
    try:
        target.split_endpoint(text)
    except target.BadEndpoint as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _shards(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MOST_SHARDS:
        raise argparse.ArgumentTypeError(f"must be a number of 1 to {MOST_SHARDS}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
