"""What `loghub status` shows of a group on this machine: while `up` runs, after it, and at 80 columns."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len

from loghub_cli.group_view import conditions_text, shard_rows
from loghub_cli.local import GroupOnDisk, overview_row, worker_rows
from loghub_cli.output import Format, render, short_age
from loghub_cli.up.paths import GroupFolder
from tests.loghub_operator.support.examples import document
from tests.loghub_operator.support.status_server import shard, worker_status

AT = "2026-11-26T18:49:24Z"
AT_UNIX_S = 1_795_718_964
CAST = "[CAST_INVALID_INPUT] The value 'abc'\nof the type"


def group(folder: Path, *, is_up: bool, **status: Any) -> GroupOnDisk:
    given = {"phase": "Running", "replicas": 3, "workers": "3/3", "lag": {"logs": 0}, **status}
    return GroupOnDisk(
        document={**document(), "status": given},
        folder=GroupFolder(folder),
        is_up=is_up,
        as_of_unix_s=AT_UNIX_S,
    )


@pytest.mark.parametrize(
    ("is_up", "phase", "shown", "workers"),
    [
        (True, "Running", "Running", "3/3"),
        (False, "Running", "Stopped", None),
        (False, "Degraded", "Stopped", None),
        (False, "Terminating", "Terminating", None),  # what `loghub down` goes on with
    ],
)
def test_without_a_process_nothing_runs_and_the_lag_is_of_a_time(
    tmp_path: Path, phase: str, shown: str, workers: str | None, *, is_up: bool
) -> None:
    row = overview_row(group(tmp_path, is_up=is_up, phase=phase))
    assert (row["up"], row["phase"], row["workers"]) == (is_up, shown, workers)
    assert (row["lagLogs"], row["asOf"]) == (0, AT)


def test_each_worker_that_should_run_says_what_is_wrong(tmp_path: Path) -> None:
    shown = group(tmp_path, is_up=True)
    reports = {
        0: worker_status(
            shard(4),
            shard(1),
            rows_written=7,
            reason="PipelineFailed",
            message=CAST,
            engine="Spark",
            why_spark="rlike\n in column 3",
        ),
        2: worker_status(engine="Arrow"),
        3: worker_status(),  # of a worker that was taken away
    }
    for ordinal, report in reports.items():
        folder = shown.folder.worker(f"access-{ordinal}")
        folder.folder.mkdir(parents=True)
        folder.status.write_bytes(msgspec.json.encode(report))
    ended = shown.folder.worker("access-1")
    ended.folder.mkdir(parents=True)
    ended.last_words.write_text("InvalidPipeline: no such column")
    said = "PipelineFailed: [CAST_INVALID_INPUT] The value 'abc' of the type"
    heads = ("worker", "phase", "shards", "rows", "engine", "says")
    assert [tuple(row[head] for head in heads) for row in worker_rows(shown)] == [
        ("access-0", "running", [1, 4], 7, "Spark (rlike in column 3)", said),
        ("access-1", "ended", [], None, None, "InvalidPipeline: no such column"),
        ("access-2", "running", [], 0, "Arrow", None),
    ]


def test_shards_and_conditions_are_aligned_at_80_columns(tmp_path: Path) -> None:
    """A time with its date broke over two lines, and a condition was a paragraph."""
    conditions = [
        {"type": kind, "status": "True", "reason": "RetryingLogGroup", "message": "word " * 40,
         "lastTransitionTime": AT}
        for kind in ("Ready", "LogsDroppedAsLate")
    ]  # fmt: skip
    held = {"id": 1, "state": "transfer", "consumer": "access-0", "nextConsumer": "access-1",
            "lagLogs": 123456, "lagSeconds": 75, "observedAt": AT}  # fmt: skip
    shards = [held, {"id": 2, "state": "not_alloc"}]
    shown = group(tmp_path, is_up=True, conditions=conditions, shards=shards).document
    rows = shard_rows(shown, now_unix_s=AT_UNIX_S + 300)
    assert [row["since"] for row in rows] == ["5m", None]
    lines = [*render(rows, Format.TABLE).splitlines(), *conditions_text(shown, width=80).splitlines()]
    assert max(map(cell_len, lines)) <= 80
    words = [line.index("word") for line in lines if "word" in line]
    assert len(words) > 4
    first = [line.index("RetryingLogGroup") for line in lines if "RetryingLogGroup" in line]
    assert len({*first, *words[1:2]}) == 1, "all of a message is below its beginning"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (34.9, "34s"), (119, "119s"), (120, "2m"), (7200, "2h"), (172800, "2d")],
)
def test_an_age_has_one_unit(seconds: float, shown: str) -> None:
    assert short_age(seconds) == shown
