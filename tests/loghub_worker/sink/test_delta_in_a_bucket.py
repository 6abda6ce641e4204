"""A Delta table in a bucket of a real S3 server."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loghub.contract.sinks import S3Settings
from loghub_consumer.resumption import CheckpointOrigin
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.files.commit_log import RangeTakenError
from tests.cluster.s3_server import S3Server, running_s3_server
from tests.loghub_worker.sink.delta_tables import delivered, ids, opened, table_sink
from tests.loghub_worker.sink.test_delta_table import deliver, everything, run, start

pytestmark = [pytest.mark.long, pytest.mark.tools]
URL = "s3://rows/a/table"


@pytest.fixture
def server(versitygw: Path, tmp_path: Path) -> Iterator[S3Server]:
    """A server of its own for each test, since some of them stop it."""
    with running_s3_server(versitygw, tmp_path / "s3") as running:
        running.bucket("rows")
        yield running


def table(server: S3Server) -> Path:
    """Its objects, which the server keeps as files."""
    return server.bucket("rows") / "a" / "table"


def sink_of(server: S3Server, folder: Path, *, name: str = "w-0", url: str = URL) -> Any:
    keys = server.credentials(folder / "keys")
    settings = S3Settings(endpoint=server.endpoint, allow_http=True)
    return table_sink(url, folder / name, name=name, keys=keys, s3=settings)


@pytest.mark.deep
def test_four_racing_writers_deliver_everything_once(server: S3Server, tmp_path: Path) -> None:
    bucket = {
        "TABLE_URL": URL,
        "TABLE_ENDPOINT": server.endpoint,
        "TABLE_KEYS": str(server.credentials(tmp_path / "keys")),
    }
    printed = run(*(start(tmp_path, f"w-{number}", bucket=bucket) for number in range(4)))
    won, refused = (sum(map(int, column)) for column in zip(*map(str.split, printed), strict=True))
    print(f"\n{won} batches committed, {refused} refused")
    assert delivered(table(server)) == everything()
    assert len(list(table(server).glob("*.parquet"))) == won, "files of refused batches are removed"


def test_of_two_workers_the_one_that_commits_later_is_refused(server: S3Server, tmp_path: Path) -> None:
    one, other = (sink_of(server, tmp_path, name=name) for name in ("one", "other"))
    assert opened(one, 10) == opened(other, 10) == 10
    deliver(one, 10, 20)
    with pytest.raises(RangeTakenError):
        deliver(other, 10, 15)
    assert opened(other, 10) == 20
    assert opened(other, 15, origin=CheckpointOrigin.MOVED) == 15
    deliver(other, 15, 20)
    assert delivered(table(server)) == Counter(ids(0, 10, 20) + ids(0, 15, 20))


def test_a_server_that_is_away_for_a_while_loses_nothing(server: S3Server, tmp_path: Path) -> None:
    sink = sink_of(server, tmp_path)
    opened(sink, 10)
    deliver(sink, 10, 20)
    server.stop()
    for attempt in (lambda: deliver(sink, 20, 30), lambda: opened(sink, 20)):
        with pytest.raises(OSError, match="no answer from the object storage"):
            attempt()
    server.start()
    assert opened(sink, 20) == 20
    deliver(sink, 20, 30)
    assert delivered(table(server)) == Counter(ids(0, 10, 30))


def test_keys_are_read_again_and_never_shown(server: S3Server, tmp_path: Path) -> None:
    sink = sink_of(server, tmp_path)
    opened(sink, 10)
    keys = server.credentials(tmp_path / "keys", secret_access_key="wrongSecret")
    for attempt in (lambda: deliver(sink, 10, 20), lambda: opened(sink, 10)):
        with pytest.raises(OSError, match="secretAccessKey does not belong to accessKeyId") as refused:
            attempt()
        assert not any(word in str(refused.value) for word in ("wrongSecret", server.access_key_id))
    server.credentials(keys.parent / "keys")
    deliver(sink, 10, 20)
    (keys / "secretAccessKey").unlink()
    with pytest.raises(OSError, match="lacks secretAccessKey"):
        opened(sink, 10)
    assert delivered(table(server)) == Counter(ids(0, 10, 20))


def test_a_bucket_that_cannot_be_used_is_reported_at_the_start(server: S3Server, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="create the bucket"):
        sink_of(server, tmp_path, url="s3://absent/table")
    with pytest.raises(InvalidSinkError, match="allowHttp"):
        table_sink(URL, tmp_path, keys=tmp_path / "keys", s3=S3Settings(endpoint=server.endpoint))
