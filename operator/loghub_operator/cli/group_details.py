"""What `loghub status` says of a LogHubConsumerGroup on this machine: values and rows.

The workers' own reports may quote logs. They are shown here, to the user whose logs they are; the conditions
of the object never quote one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from loghub_operator.api import LogHubConsumerGroup, Phase, patterns
from loghub_operator.cli.output import Record, on_one_line, short_age, utc
from loghub_operator.local.paths import GroupFolder
from loghub_operator.local.processes.worker_state import last_words, read_status

STOPPED = "Stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOnDisk:
    """A group as the last `loghub up` left it, or as the one that runs keeps it; its status was written at
    ``as_of_unix_s``."""

    resource: LogHubConsumerGroup
    folder: GroupFolder
    is_up: bool
    as_of_unix_s: float


def overview_row(group: GroupOnDisk) -> Record:
    """A phase and workers are those of a process: without one there are none. Shards and lag are as of the
    last observation."""
    status = group.resource.status
    phase = status.phase.value if status.phase else None
    if not group.is_up and status.phase is not Phase.TERMINATING:
        phase = STOPPED
    return {
        "name": group.resource.metadata.name,
        "up": group.is_up,
        "phase": phase,
        "workers": status.workers if group.is_up else None,
        "shards": status.shard_summary.total if status.shard_summary else None,
        "lagLogs": status.lag.logs if status.lag else None,
        "lagSeconds": status.lag.seconds if status.lag else None,
        "asOf": utc(group.as_of_unix_s),
    }


def worker_rows(group: GroupOnDisk) -> list[Record]:
    """The workers that should run, by their own reports."""
    return list(_worker_rows(group))


def _worker_rows(group: GroupOnDisk) -> Iterator[Record]:
    for ordinal in range(group.resource.status.replicas):
        name = f"{group.resource.metadata.name}-{ordinal}"
        folder = group.folder.worker(name)
        status = read_status(folder)
        if status is None:
            reason, message = last_words(folder) or ("", "")
            yield _worker(name, "starting" if not message else "ended", [], None, reason, message)
            continue
        held = sorted(shard.shard for shard in status.shards)
        yield _worker(name, status.phase, held, status.rows_written, status.reason, status.message)


def _worker(name: str, phase: str, shards: list[int], rows: int | None, reason: str, message: str) -> Record:
    said = ": ".join(part for part in (reason, " ".join(message.split())) if part)
    return {"worker": name, "phase": phase, "shards": shards, "rows": rows, "says": said or None}


def shard_rows(group: GroupOnDisk, *, now_unix_s: float) -> list[Record]:
    """``since``: for how long this has been reported."""
    return [
        {
            "shard": one.id,
            "state": one.state,
            "consumer": one.consumer,
            "next": one.next_consumer,
            "lagLogs": one.lag_logs,
            "lagSeconds": one.lag_seconds,
            "since": short_age(now_unix_s - patterns.unix_s(one.observed_at)) if one.observed_at else None,
        }
        for one in group.resource.status.shards
    ]


def conditions_table(group: GroupOnDisk) -> Table:
    """Type and status in columns, and next to them why, over as many lines as that takes."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in ("CONDITION", "STATUS"):
        table.add_column(head, no_wrap=True)
    table.add_column("WHY", overflow="fold")
    for one in group.resource.status.conditions:
        why = f"{one.reason}: {one.message}" if one.message else one.reason
        table.add_row(*(escape(on_one_line(cell)) for cell in (one.type, one.status, why)))
    return table
