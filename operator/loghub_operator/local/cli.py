"""The command line ``loghub``, which runs consumer groups on this machine.

Exit status: 0 success; 1 failure; 2 invalid input; ``loghub fsck --help`` lists its own. For an endpoint
other than the embedded service, the access key is read from LOGHUB_ACCESS_KEY_ID and
LOGHUB_ACCESS_KEY_SECRET (and LOGHUB_SECURITY_TOKEN for STS).
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from loghub.client import target
from loghub_operator.api import InvalidResourceError
from loghub_operator.local.commands import DownOptions, Refused, StartFailed, UpOptions, down, serve, up
from loghub_operator.local.embedded_service import ServiceStartError
from loghub_operator.local.file_lock import InUseError
from loghub_operator.local.paths import Root
from loghub_operator.local.status_command import show_status

DONE, FAILED, MISUSED = 0, 1, 2
MAX_SHARDS = 256


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status."""
    parser = _parser()
    args, rest = parser.parse_known_args(arguments)
    if args.run is None:
        return _fsck(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.root = Root(args.state_dir.absolute()) if args.state_dir else Root.default(os.environ)
    try:
        status: int = args.run(args)
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


def _up(args: argparse.Namespace) -> int:
    options = UpOptions(
        root=args.root,
        file=args.file,
        name=args.name,
        endpoint=args.endpoint,
        allowed_http_hosts=tuple(args.allow_http),
        create_logstore=args.create_logstore,
        shards=args.shards,
        wait_for=args.wait_for,
        live=sys.stdout.isatty() and not args.plain,
    )
    return asyncio.run(up(options))


def _down(args: argparse.Namespace) -> int:
    options = DownOptions(
        root=args.root,
        file=args.file,
        name=args.name,
        endpoint=args.endpoint,
        allowed_http_hosts=tuple(args.allow_http),
    )
    return asyncio.run(down(options))


def _status(args: argparse.Namespace) -> int:
    return show_status(args.root, args.name, as_json=args.json)


def _serve(args: argparse.Namespace) -> int:
    return serve(args.root, args.listen)


def _fsck(arguments: Sequence[str]) -> int:
    """Runs the service's own program, which knows the arguments and their exit statuses."""
    return subprocess.run([sys.executable, "-m", "loghub.service.fsck", *arguments], check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="loghub", description="Run LogHub consumer groups on this machine.", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _up_arguments(_command(commands, "up", "run a LogHubConsumerGroup with local worker processes", _up))
    down = _command(
        commands,
        *("down", "stop a group's workers and delete or retain the group according to deletionPolicy"),
        _down,
    )
    down.add_argument("-f", "--file", type=Path, help="YAML file with the LogHubConsumerGroup")
    _common(down)
    status = _command(commands, "status", "show the status of groups", _status)
    status.add_argument("name", nargs="?", help="show the details of this LogHubConsumerGroup only")
    status.add_argument("--json", action="store_true", help="print the status as JSON")
    serve = _command(commands, "serve", "run the embedded LogHub service in the foreground", _serve)
    serve.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="address to listen on; default: a free port",
    )
    # Its program parses the arguments, --help included.
    commands.add_parser(
        "fsck",
        help="list what is wrong with a data folder of the embedded service, and repair it",
        add_help=False,
        allow_abbrev=False,
    ).set_defaults(run=None)
    return parser


def _up_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--file", type=Path, required=True,
        help="YAML file with the LogHubConsumerGroup; changes are applied when you save it",
    )  # fmt: skip
    _common(parser)
    parser.add_argument(
        "--create-logstore",
        action="store_true",
        help="create the project and the logstore if they do not exist",
    )
    parser.add_argument(
        "--shards", type=_shards, default=4,
        help="number of shards of a logstore created by --create-logstore (default: 4)",
    )  # fmt: skip
    parser.add_argument(
        "--wait-for", choices=("ready", "caught-up"),
        help="stop once every worker is ready, or once there is no lag",
    )  # fmt: skip
    parser.add_argument("--plain", action="store_true", help="print plain lines instead of the live view")


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, text: str, run: object
) -> argparse.ArgumentParser:
    description = f"{text[0].upper()}{text[1:]}."
    parser = commands.add_parser(name, help=text, description=description, allow_abbrev=False)
    parser.set_defaults(run=run)
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="directory for all state; default: $XDG_STATE_HOME/loghub or ~/.local/state/loghub",
    )
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", help="name of the LogHubConsumerGroup, if the file contains several")
    parser.add_argument(
        "--endpoint", type=_endpoint, metavar="URL",
        help="URL that `endpoint: embedded` refers to; default: an embedded service on this machine",
    )  # fmt: skip
    parser.add_argument(
        "--allow-http", metavar="HOST", action="append", default=[],
        help="public host to which keys and logs may be sent by http; *.example.com for all below a domain",
    )  # fmt: skip


def _endpoint(text: str) -> str:
    try:
        target.split_endpoint(text)
    except target.BadEndpoint as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text if "://" in text else f"http://{text}"  # it is stored as the object's endpoint


def _shards(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MAX_SHARDS:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {MAX_SHARDS}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
