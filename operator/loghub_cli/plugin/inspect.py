"""Commands for a closer look: ``logs``, ``shell`` and ``report``."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from loghub.clock import SystemClock
from loghub_cli.commands import Command
from loghub_cli.group_view import Document, status_of
from loghub_cli.options import FOLDER, Show, formatted
from loghub_cli.output import Failed
from loghub_cli.plugin import report as reports
from loghub_cli.plugin.arguments import group_argument, in_cluster
from loghub_cli.plugin.kubectl import Kubectl
from loghub_cli.plugin.log_text import LogLine, by_time
from loghub_cli.plugin.worker_pods import CONTAINER, selector

MAX_ORDINAL = 999  # the most workers that the CRD allows are 1000
_SHELL = "command -v bash > /dev/null && exec bash || exec sh"
_worker = click.option(
    "--worker", type=click.IntRange(0, MAX_ORDINAL), metavar="N", help="The worker NAME-N only."
)


@click.command(cls=Command)
@group_argument
@_worker
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--pretty", is_flag=True, help="JSON messages as lines for people, of all workers by time.")
@click.option("--tail", type=click.IntRange(-1), default=200, show_default=True, metavar="N",
              help="Lines of each worker to begin with; -1 for all.")  # fmt: skip
@click.option("--since", metavar="AGE", help="Only lines of this age, such as 10m.")
@click.option("--previous", is_flag=True, help="The log of the container before its last restart.")
@in_cluster
def logs(  # noqa: PLR0913 - each is an option
    name: str,
    worker: int | None,
    follow: bool,
    pretty: bool,
    tail: int,
    since: str | None,
    previous: bool,
    kubectl: Kubectl,
) -> None:
    """Print the logs of the workers of a group."""
    document = kubectl.group(name)
    arguments = _log_arguments(document, worker, tail=tail, since=since)
    if previous:
        arguments.append("--previous")
    if follow:
        arguments.append("--follow")
    with closing(kubectl.stream("logs", *arguments)) as lines, suppress(KeyboardInterrupt):
        for line in _shown(lines, pretty=pretty, by_times=not follow):
            click.echo(line)


def _shown(lines: Iterable[str], *, pretty: bool, by_times: bool) -> Iterator[str]:
    if not pretty:
        yield from (line.rstrip("\n") for line in lines)
        return
    for line in by_time(lines) if by_times else map(LogLine.of, lines):
        yield from line.readable()


def _log_arguments(document: Document, worker: int | None, *, tail: int, since: str | None) -> list[str]:
    name = document["metadata"]["name"]
    if worker is not None:
        arguments = [f"{name}-{worker}", "--prefix"]
    else:
        # Else kubectl follows five pods and refuses more.
        most = max(status_of(document).get("replicas", 0), 1) + 1
        arguments = [f"--selector={selector(document)}", "--prefix", f"--max-log-requests={most}"]
    return [
        *arguments,
        f"--container={CONTAINER}",
        f"--tail={tail}",
        *([f"--since={since}"] if since else []),
    ]


@click.command(cls=Command)
@group_argument
@_worker
@in_cluster
def shell(name: str, worker: int | None, kubectl: Kubectl) -> int:
    """Open a shell in the container of a worker, of the first one by default."""
    document = kubectl.group(name)
    if not status_of(document).get("replicas", 0):
        raise Failed(f"kubectl loghub: no worker of {name} runs")
    terminal = ("--stdin", "--tty") if sys.stdin.isatty() else ("--stdin",)
    return kubectl.hand_over(
        "exec", *terminal, f"{name}-{worker or 0}", f"--container={CONTAINER}", "--", "sh", "-c", _SHELL
    )


@click.command(cls=Command)
@group_argument
@click.option("--to", "path", type=FOLDER, metavar="FILE",
              help="The zip to write; default: loghub-NAME-TIME.zip in this folder.")  # fmt: skip
@click.option("--lines", type=click.IntRange(0, reports.MAX_LOG_LINES), default=2000, show_default=True,
              metavar="N", help="The last lines of each log.")  # fmt: skip
@formatted
@in_cluster
def report(name: str, path: Path | None, lines: int, show: Show, kubectl: Kubectl) -> None:
    """Write a zip for those who help: objects, events, logs and versions, without secrets."""
    now = SystemClock().unix_s()
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    target = path or Path(f"loghub-{name}-{at}.zip")
    if target.exists():
        raise Failed(f"kubectl loghub: {target} exists already")
    found = reports.collect(kubectl, name, lines=lines, now_unix_s=now)
    reports.write(found, name, target, now_unix_s=now)
    show(
        {
            "report": str(target),
            "files": len(found.files),
            "missing": [one.partition(":")[0] for one in found.missing],
        }
    )
