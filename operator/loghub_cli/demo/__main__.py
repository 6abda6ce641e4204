"""``python -m loghub_cli.demo``, or ``make demo``: run the demo and print a summary.

Exit status: 0 every line is in the sink exactly once; 1 it is not, or the demo or its producer failed;
2 invalid input.
"""

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from loghub_cli.demo.ground_truth import BadLogsError, check_file
from loghub_cli.demo.run import DemoOptions, DemoResult, NotOfTheDemo, run
from loghub_cli.up.commands import StartFailed
from loghub_cli.up.embedded_service import ServiceStartError
from loghub_cli.up.paths import InUseError, Root, owner_only
from loghub_cli.up.stopping import Interrupted
from loghub_operator.api import InvalidResourceError

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "access-log.yaml"
DONE, FAILED, MISUSED = 0, 1, 2
# The service and the worker require these packages, and the command alone does not.
NEEDED = ("apsw", "uvicorn", "pyarrow", "pyspark")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    args = _parser().parse_args(arguments)
    absent = [name for name in NEEDED if find_spec(name) is None]
    if absent:
        return _complain(f"it needs {', '.join(absent)}; run it by `make demo` in a clone", FAILED)
    folder = args.state_dir.absolute() if args.state_dir else Root.default(os.environ).folder / "demo"
    try:
        if args.logs is not None:
            check_file(args.logs)
        with owner_only():
            folder.mkdir(parents=True, exist_ok=True)
            outcome = asyncio.run(run(_options(args, folder)))
    except (BadLogsError, InvalidResourceError) as error:
        return _complain(str(error), MISUSED)
    except (StartFailed, NotOfTheDemo, InUseError, Interrupted, ServiceStartError, OSError) as error:
        return _complain(str(error), FAILED)
    for line in summary(outcome):
        print(line)  # noqa: T201 - the program's output
    return DONE if outcome.verdict.exactly_once and not outcome.producer_failed else FAILED


def summary(outcome: DemoResult) -> Iterator[str]:
    """The last lines on the screen."""
    yield ""
    yield str(outcome.verdict)
    first = "no row came" if outcome.first_row_s is None else f"first row after {outcome.first_row_s:.0f} s"
    yield f"{first}, ended after {outcome.elapsed_s:.0f} s"
    if outcome.producer_failed:
        yield f"the producer failed: {outcome.producer_failed}"
    yield f"output (Parquet):    {outcome.sink}"
    yield f"what was sent:       {outcome.record}"
    count = [
        sys.executable,
        "-P",
        "-m",
        "loghub_cli.demo.verify",
        str(outcome.record),
        str(outcome.sink),
    ]
    yield f"count it again with: {shlex.join(count)}"


def _options(args: argparse.Namespace, folder: Path) -> DemoOptions:
    return DemoOptions(
        folder=folder,
        cr=args.cr,
        logs=args.logs.absolute() if args.logs else None,
        rate=args.rate,
        keep=args.keep,
        pause_s=args.pause,
        limit_s=args.limit,
        live=sys.stdout.isatty() and not args.plain,
    )


def _complain(text: str, status: int) -> int:
    print(f"demo: {text}", file=sys.stderr)  # noqa: T201 - the program's output
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Run a consumer group through a scripted scenario and verify its output.",
        allow_abbrev=False,
    )
    parser.add_argument("--logs", type=Path, help="text file to send; default: a generated access log")
    parser.add_argument("--keep", action="store_true", help="keep running after the scenario until Ctrl-C")
    parser.add_argument("--rate", type=_positive, default=400.0, help="lines sent per second (default: 400)")
    parser.add_argument(
        "--pause", type=_positive, default=4.0, help="seconds between the steps of the scenario (default: 4)"
    )
    parser.add_argument(
        "--limit", type=_positive, default=120.0, help="time limit of the scenario in seconds (default: 120)"
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        help="directory of the demo's own, which the next demo empties; default: $XDG_STATE_HOME/loghub/demo",
    )
    parser.add_argument("--cr", type=Path, default=EXAMPLE, help="YAML file with another LogHubConsumerGroup")
    parser.add_argument("--plain", action="store_true", help="print plain lines instead of the live view")
    return parser


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
