"""A whole worker whose target cannot be used for a while: it says so with a reason, keeps its shards, tries
again, and delivers everything once the target is back.

The worker's threads run in this process, on a real Spark and a real service. `make test` has a full disk, and
a worker that waits for PostgreSQL at its start; `make check-deep` has all, those with something to change
among them.
`sink/postgresql` has more of PostgreSQL, and `sink/test_kafka_worker` has Kafka.
"""

import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import LogstoreSink
from loghub_worker.query import streaming_query
from loghub_worker.sink.files import bucket as bucket_module
from loghub_worker.worker import WorkerRuntime
from tests.cluster.s3_server import S3Server, running_s3_server
from tests.loghub_worker.sink_targets import (
    MakeTarget,
    Place,
    Target,
    bucket,
    delta_table,
    files_of_spark,
    folder,
    lines_in_a_folder,
    table_of,
)
from tests.loghub_worker.sink_views import COPY, CopiesView
from tests.loghub_worker.support import GUARD_S, PROJECT, Producer, all_saved, prepare, worker_config
from tests.loghub_worker.test_copy import running
from tests.postgresql_server import PASSWORDS, USER, PostgresqlServer, running_postgresql
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

DISK_BYTES = 4 << 20
FAILURES = 1  # after which a query that cannot run ends its worker here; each is a start of Spark's query


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """What a case may spoil."""

    folder: Path  # has the target's own, `sink`, `table` or `lines`, and the `keys` of a bucket
    client: HttpLogHub
    patch: pytest.MonkeyPatch
    server: Any = None  # of the target, if it needs one


Spoil = Callable[[Spot], AbstractContextManager[object]]


def a_file_instead_of(name: str) -> Spoil:
    """As where a volume is not mounted any more."""

    @contextmanager
    def spoil(spot: Spot) -> Iterator[None]:
        place, kept = spot.folder / name, spot.folder / "kept"
        place.rename(kept)
        place.write_text("a file")
        yield
        place.unlink()
        kept.rename(place)

    return spoil


def gone(name: str) -> Spoil:
    @contextmanager
    def spoil(spot: Spot) -> Iterator[None]:
        place, kept = spot.folder / name, spot.folder / "kept"
        place.rename(kept)
        yield
        assert not place.exists(), "a volume that is away could not be mounted there again"
        kept.rename(place)

    return spoil


@contextmanager
def folder_on_a_small_disk(place: Place) -> Iterator[Target]:
    """As `folder`, on a disk of its own, which only the superuser can mount."""
    (place.folder / "sink").mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(place.folder / "sink")]
    if (mounted := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"a small disk needs the right to mount one, as root has: {mounted.stderr}")
    try:
        with folder(place) as target:
            yield target
    finally:
        subprocess.run(["umount", "--lazy", str(place.folder / "sink")], check=True)


@contextmanager
def no_space(spot: Spot) -> Iterator[None]:
    """Every block of the disk is taken."""
    ballast = spot.folder / "sink" / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    yield
    ballast.unlink()


@contextmanager
def no_links(spot: Spot, number: int) -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with spot.patch.context() as patch:
        patch.setattr(os, "link", refuse)
        yield


def full(spot: Spot) -> AbstractContextManager[None]:
    return no_links(spot, errno.ENOSPC)


def no_rights(spot: Spot) -> AbstractContextManager[None]:
    """The superuser, as whom tests may run, has the right to write anywhere."""
    return no_links(spot, errno.EACCES)


@contextmanager
def wrong_key(spot: Spot) -> Iterator[None]:
    s3: S3Server = spot.server
    s3.credentials(spot.folder / "keys", secret_access_key="wrong")
    yield
    s3.credentials(spot.folder / "keys")


@contextmanager
def no_server(spot: Spot) -> Iterator[None]:
    spot.server.stop()
    yield
    spot.server.start()


@contextmanager
def table(place: Place) -> Iterator[Target]:
    yield table_of(place.fixture("server"), place.folder)


@contextmanager
def crash(spot: Spot) -> Iterator[None]:
    database: PostgresqlServer = spot.server
    database.stop(signal.SIGQUIT)
    yield
    database.start()


@contextmanager
def another_type(spot: Spot) -> Iterator[None]:
    """Another writer replaces the table by one with a number in the column."""
    place, kept = spot.folder / "table", spot.folder / "kept"
    place.rename(kept)
    write_deltalake(place, pa.table({"id": [1]}))
    assert DeltaTable(place).version() == 0
    yield
    place.rename(spot.folder / "written-meanwhile")
    kept.rename(place)


@contextmanager
def logstore(place: Place) -> Iterator[Target]:
    place.client.create_logstore(COPY, shards=1)
    view = CopiesView(place.client)  # remembers what the logstore had before it was deleted
    yield Target(settings=LogstoreSink(project=PROJECT, logstore=COPY), view=view, ids=view.ids)


@contextmanager
def deleted(spot: Spot) -> Iterator[None]:
    spot.client.delete_logstore(COPY)
    yield
    spot.client.create_logstore(COPY, shards=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    make: MakeTarget
    spoil: Spoil
    reason: str = "SinkUnavailable"
    message: str
    outlasts: bool = False  # the worker fails more often than a query that cannot run may


# What also stands for others is part of `make test`.
STANDS_ALONE = {
    "folder, full": Case(
        make=folder_on_a_small_disk, spoil=no_space, message="No space left on device", outlasts=True
    ),
}
OTHERS = {
    "postgresql, away": Case(make=table, spoil=crash, message="/logs: connection"),
    "spark, not mounted": Case(
        make=files_of_spark, spoil=a_file_instead_of("lines"), reason="PipelineFailed", message="lines"
    ),
    "logstore, deleted": Case(make=logstore, spoil=deleted, reason="LogstoreNotFound", message=COPY),
    "folder, not mounted": Case(make=folder, spoil=a_file_instead_of("sink"), message="Not a directory"),
    "folder, full once Spark has written": Case(make=folder, spoil=full, message="No space left on device"),
    "folder, no rights": Case(make=lines_in_a_folder, spoil=no_rights, message="Permission denied"),
    "bucket, no rights": Case(make=bucket, spoil=wrong_key, message="secretAccessKey is not that of"),
    "bucket, away": Case(make=bucket, spoil=no_server, message="no answer from the object storage"),
    "delta, another schema": Case(
        make=delta_table,
        spoil=another_type,
        reason="InvalidSink",
        message="'id' is string in the query and long in the table",
    ),
    "delta, gone": Case(make=delta_table, spoil=gone("table"), message="the Delta table is gone"),
    "delta, not mounted": Case(make=delta_table, spoil=a_file_instead_of("table"), message="Not a directory"),
}


def parameters(stand_alone: Mapping[str, Case], others: Mapping[str, Case]) -> list[Any]:
    return [
        pytest.param(
            case,
            id=name,
            marks=[
                *([pytest.mark.tools] if case.make is bucket else []),
                *([pytest.mark.deep] if name in others else []),
            ],
        )
        for name, case in (stand_alone | others).items()
    ]


def failures(worker: WorkerRuntime) -> int:
    """Of the whole query, in a row."""
    assert worker._query_runner is not None
    return worker._query_runner._failures


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


@contextmanager
def spot_of(case: Case, folder: Path, client: HttpLogHub, request: Any) -> Iterator[Spot]:
    """What the case may spoil; with a server of its own where the target needs one."""
    patch = request.getfixturevalue("monkeypatch")
    with ExitStack() as stack:
        server = None
        if case.make is bucket:
            patch.setattr(bucket_module, "RETRY_TIMEOUT_S", 1)
            server = stack.enter_context(
                running_s3_server(request.getfixturevalue("versitygw"), folder / "s3")
            )
        elif case.make is table:
            server = stack.enter_context(running_postgresql())
        yield Spot(folder=folder, client=client, patch=patch, server=server)


@contextmanager
def target_of(case: Case, spot: Spot) -> Iterator[Target]:
    """The target of the case; the test has its variables."""
    with case.make(Place(folder=spot.folder, client=spot.client, fixture=lambda _: spot.server)) as target:
        for name, value in target.variables.items():
            spot.patch.setenv(name, value)
        yield target


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("case", parameters(STANDS_ALONE, OTHERS))
def test_a_target_that_cannot_be_used_for_a_while_costs_no_log(
    tmp_path: Path,
    service: ServiceProcess,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    case: Case,
) -> None:
    client = prepare(service, shards=1)
    producer = Producer(client)
    with spot_of(case, tmp_path, client, request) as spot, target_of(case, spot) as target:
        config = worker_config(service.endpoint, target.settings, max_log_groups=5, **target.config)
        producer.put(groups=5)
        with running(tmp_path / "w-0", service, config) as worker:
            wait_until(lambda: all_saved(client), "the first logs", guard_s=GUARD_S)
            assert target.ids() == producer.sent
            if case.outlasts:
                monkeypatch.setattr(streaming_query, "MAX_PAUSE_S", 0.01)
                monkeypatch.setattr(streaming_query, "MAX_FAILURES", FAILURES)
            with case.spoil(spot):
                producer.put(groups=5)
                wait_until(lambda: worker.status().reason == case.reason, "the reason", guard_s=GUARD_S)
                status = worker.status()
                assert case.message in status.message
                assert PASSWORDS[USER] not in status.message
                assert status.phase == "running"
                assert [shard.shard for shard in status.shards] == [0], "it keeps its shards"
                assert not all_saved(client)
                if case.outlasts:
                    wait_until(lambda: failures(worker) > FAILURES, "more failures", guard_s=GUARD_S)
            wait_until(lambda: all_saved(client), "the rest", guard_s=GUARD_S)
            wait_until(lambda: worker.status().reason == "", "the reason to be cleared", guard_s=GUARD_S)
            skipped = worker.status().skipped
        assert skipped == []
        assert target.ids() == producer.sent


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "case",
    parameters(
        {"postgresql, away": OTHERS["postgresql, away"]},
        {name: OTHERS[name] for name in ("folder, not mounted", "bucket, away")},
    ),
)
def test_a_worker_that_starts_meanwhile_waits_for_its_target(
    tmp_path: Path,
    service: ServiceProcess,
    request: pytest.FixtureRequest,
    case: Case,
) -> None:
    """It waits before Spark starts, and joins its group once the target is back."""
    client = prepare(service, shards=1)
    producer = Producer(client)
    with spot_of(case, tmp_path, client, request) as spot, target_of(case, spot) as target:
        producer.put(groups=5)
        (tmp_path / "sink").mkdir()
        spoiled = case.spoil(spot)
        spoiled.__enter__()
        with running(tmp_path / "w-0", service, worker_config(service.endpoint, target.settings)) as worker:
            try:
                wait_until(lambda: worker.status().reason == case.reason, "the reason", guard_s=GUARD_S)
                status = worker.status()
                assert (status.phase, status.shards) == ("starting", [])
                assert case.message in status.message
            finally:
                spoiled.__exit__(None, None, None)
                wait_until(lambda: all_saved(client), "all logs", guard_s=GUARD_S)
            assert worker.status().reason == ""
        assert target.ids() == producer.sent
