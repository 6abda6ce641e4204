"""``python -m loghub_cli.demo``, or ``make demo``: run the demo and print a summary.

Exit status: 0 every line is in the sink exactly once; 1 it is not, or the demo or its producer failed;
2 invalid input.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from loghub_cli.commands import exit_status
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
    return exit_status(command, arguments, "make demo")


def _positive(value: str | float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1e6:
        raise click.BadParameter(f"{value!r} is not a number above 0, at most a million")
    return number


_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--logs", type=_PATH, help="Text file to send; default: a generated access log.")
@click.option("--keep", is_flag=True, help="Keep running after the scenario until Ctrl-C.")
@click.option(
    "--rate", type=_positive, metavar="N", default=400.0, show_default=True, help="Lines sent per second."
)
@click.option(
    "--pause",
    "pause_s",
    type=_positive,
    metavar="SECONDS",
    default=4.0,
    show_default=True,
    help="Time between the steps of the scenario.",
)
@click.option(
    "--limit",
    "limit_s",
    type=_positive,
    metavar="SECONDS",
    default=120.0,
    show_default=True,
    help="Time limit of the scenario.",
)
@click.option(
    "--state-dir",
    type=_PATH,
    help="Directory of the demo's own, which the next demo empties; default: $XDG_STATE_HOME/loghub/demo.",
)
@click.option("--cr", type=_PATH, default=EXAMPLE, help="YAML file with another LogHubConsumerGroup.")
@click.option("--plain", is_flag=True, help="Print plain lines instead of the live view.")
def command(*, logs: Path | None, state_dir: Path | None, plain: bool, **others: Any) -> int:
    """Run a consumer group through a scripted scenario and verify its output."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    if absent:
        return _complain(f"it needs {', '.join(absent)}; run it by `make demo` in a clone", FAILED)
    folder = state_dir.absolute() if state_dir else Root.default(os.environ).folder / "demo"
    options = DemoOptions(
        folder=folder,
        logs=logs.absolute() if logs else None,
        live=sys.stdout.isatty() and not plain,
        **others,
    )
    try:
        if logs is not None:
            check_file(logs)
        with owner_only():
            folder.mkdir(parents=True, exist_ok=True)
            outcome = asyncio.run(run(options))
    except (BadLogsError, InvalidResourceError) as error:
        return _complain(str(error), MISUSED)
    except (StartFailed, NotOfTheDemo, InUseError, Interrupted, ServiceStartError, OSError) as error:
        return _complain(str(error), FAILED)
    for line in summary(outcome):
        click.echo(line)
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


def _complain(text: str, status: int) -> int:
    click.echo(f"demo: {text}", err=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
