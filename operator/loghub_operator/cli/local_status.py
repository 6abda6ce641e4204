"""`loghub status`: shows the groups' status from another terminal.

The command reads the files of `loghub_operator.local.object_store` and of the workers, and does not ask the
log service about the LogHubConsumerGroups, so it shows what the last reconcile observed, and when. It asks
the embedded service of this machine for the groups of Kafka clients, of all projects.
"""

import sys
from collections.abc import Iterator, Sequence

from rich.console import Console

from loghub.clock import SystemClock
from loghub.near_names import did_you_mean
from loghub_operator.api import InvalidResourceError
from loghub_operator.api.v1alpha1 import EMBEDDED
from loghub_operator.cli.group_details import (
    GroupOnDisk,
    conditions_table,
    overview_row,
    shard_rows,
    worker_rows,
)
from loghub_operator.cli.kafka_groups import document, overview, reported_groups
from loghub_operator.cli.output import Format, render, utc
from loghub_operator.cli.output import Record as Shown
from loghub_operator.local.embedded_service import KEYS, running_at, running_kafka_at
from loghub_operator.local.file_lock import is_locked
from loghub_operator.local.object_store import Record
from loghub_operator.local.paths import Root
from loghub_operator.local.service_options import how_to_log_in

DONE, FAILED = 0, 1
_PIPE_WIDTH = 1000  # a program reads every name whole


def show_status(root: Root, name: str | None, form: Format) -> int:
    """Prints the status; returns 1 if there is nothing to show."""
    records = list(_records(root, name))
    service = "" if name is not None else running_at(root.service)
    if not records and not service:
        what = "no group" if name is None else f"no group {name}"
        hint = "" if name is None else did_you_mean(name, root.group_names())
        print(f"loghub: {what} in {root.groups}{hint}", file=sys.stderr)  # noqa: T201 - the program's output
        return FAILED
    console = Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)
    of_clients = reported_groups(service, root.service / KEYS) if service else ()
    if form is not Format.TABLE:
        documents = [*_documents(root, records), *map(document, of_clients)]
        _print(console, render(documents[0] if name else documents, form))
        return DONE
    groups = [_on_disk(record) for record in records]
    if groups:
        _print(console, render([overview_row(group) for group in groups], form))
    for line in _service_lines(root, service):
        _print(console, line)
    if of_clients:
        _print(console, "\n" + render(overview(of_clients), form))
    if name is not None:
        _details(console, groups[0])
    return DONE


def _documents(root: Root, records: Sequence[Record]) -> Iterator[Shown]:
    kafka = running_kafka_at(root.service) or None
    for record in records:
        at = kafka if record.resource().spec.endpoint == EMBEDDED else None
        group = _on_disk(record)
        yield {
            **record.document,
            "up": group.is_up,
            "asOf": utc(group.as_of_unix_s),
            "workers": worker_rows(group) if group.is_up else [],
            "kafka": at,
        }


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _service_lines(root: Root, endpoint: str) -> Iterator[str]:
    if endpoint:
        yield f"embedded service: {endpoint}"
        kafka = running_kafka_at(root.service)
        if kafka:
            yield how_to_log_in(kafka, root.service / KEYS, tls=endpoint.startswith("https:"))


def _records(root: Root, name: str | None) -> Iterator[Record]:
    for group in [name] if name is not None else root.group_names():
        record = Record.load(root.group(group)) if "/" not in group else None
        if record is None:
            continue
        try:
            record.resource()
        except InvalidResourceError as error:
            print(f"loghub: {error}", file=sys.stderr)  # noqa: T201 - the program's output
            continue
        yield record


def _on_disk(record: Record) -> GroupOnDisk:
    return GroupOnDisk(
        resource=record.resource(),
        folder=record.folder,
        is_up=is_locked(record.folder.lock),
        as_of_unix_s=record.folder.object.stat().st_mtime,
    )


def _details(console: Console, group: GroupOnDisk) -> None:
    if group.is_up:
        _print(console, "\n" + render(worker_rows(group), Format.TABLE))
    _print(console, "\n" + render(shard_rows(group, now_unix_s=SystemClock().unix_s()), Format.TABLE) + "\n")
    with console.capture() as conditions:
        console.print(conditions_table(group))
    _print(console, "\n".join(line.rstrip() for line in conditions.get().splitlines()))
