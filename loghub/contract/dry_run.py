"""What a worker's program does besides working: its arguments, and the files of a dry run.

``python -m loghub_worker check`` makes the checks of a worker's start and ends as a worker would, without
joining the group; `loghub up` starts it. With ``check offline`` neither the log service nor the target of the
sink is contacted; `loghub check` starts that.

``python -m loghub_worker try SAMPLE REPORT`` reads the file SAMPLE, which is a `LogSample`, runs the pipeline
of its settings over these logs, without a log service, a consumer group or the target of the sink, and writes
the file REPORT, a `DryRunReport`. `loghub try` starts it.
"""

from typing import Any

import msgspec

CHECK, OFFLINE = "check", "offline"
TRY = "try"


class SampledGroup(msgspec.Struct, frozen=True, array_like=True):
    """A log group and the place where it was read."""

    shard: int
    cursor: int
    log_group: bytes  # as it was written (docs/sls-protocol.md 3)


class LogSample(msgspec.Struct, frozen=True, kw_only=True):
    """The logs to try a pipeline on, in the order of each shard, and how many rows are shown."""

    groups: list[SampledGroup]
    max_rows: int


class RejectedLogs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Logs of a log group that are not done, and why, as a dead letter would have them."""

    shard: int
    cursor: str
    logs: int
    reason: str
    message: str


class ResultColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the rows."""

    name: str
    type: str  # as Spark writes it


class ResultPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the sink, and how many rows it gets."""

    partition: str  # as the sink names it: column=value/...
    rows: int


class DryRunReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pipeline makes of some logs."""

    logs: int  # that were given
    done: int  # logs whose rows would be in the sink, or that the processor is done with
    untried: int = 0  # logs that were left out, since so many others were rejected
    columns: list[ResultColumn] = []
    rows: int | None = None  # None: a processor returns none
    first_rows: list[dict[str, Any]] = []
    partitions: list[ResultPartition] = []
    more_partitions: int = 0  # that are not listed
    rejected: list[RejectedLogs] = []
    notes: list[str] = []  # sentences on what a worker would have done, and this did not


REJECTED_SHOWN = 10  # each costs up to 2 log2(log groups) runs of the query, and people correct one at a time
PARTITIONS_SHOWN = 100  # a thousand is the maximum of a batch, and nobody reads them
