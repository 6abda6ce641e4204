"""Rows of queries in another logstore, on a real Spark and a real service: everything of a log is kept, and
order and shard too if requested."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from loghub.client.choice import ClientKind
from loghub.client.http import HttpLogHub
from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode, split, wrap
from loghub.wire.loggroup import decode as decode_group
from loghub_consumer.reading.decoding import Body
from loghub_consumer.reading.decoding import decode as decode_rows
from loghub_worker.query.batch_errors import query_error
from loghub_worker.query.transform import SqlTransform, empty_logs
from loghub_worker.sink.logstore.sink import LogstoreWriter, TargetLogstore
from tests.loghub_worker.support import LOGSTORE, PROJECT, prepare, source_of
from tests.support import ServiceProcess, running_service

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

COPY = "copied"
GROUPS = [
    LogGroup(
        logs=tuple(
            Log(time=1_700_000_000 + n, time_ns=n * 1001, contents=(("n", f"{shard}-{group}-{n}"), ("e", "")))
            for n in range(3)
        ),
        topic=f"t{group % 2}",
        source=f"10.0.0.{shard}",
        tags=(("__hostname__", "h"), ("group", str(group))),
    )
    for shard in range(2)
    for group in range(4)
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as process:
        prepare(process, shards=2)
        yield process


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[HttpLogHub]:
    client = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)
    client.create_logstore(COPY, shards=4)
    yield client
    client.delete_logstore(COPY)


def writer(
    service: ServiceProcess, folder: Path, *, keep_order: bool = False, over: ClientKind = "http"
) -> LogstoreWriter:
    address = replace(source_of(service), client=over)
    target, source = (
        TargetLogstore(address=address, name=COPY),
        TargetLogstore(address=address, name=LOGSTORE),
    )
    return LogstoreWriter(target, source, keep_order=keep_order, scratch=folder)


def logs_of(spark: SparkSession) -> DataFrame:
    """The rows of `GROUPS`, four groups of each of two shards, each shard in one task."""
    tables = [
        decode_rows([Body(100, wrap(map(encode, GROUPS[4 * shard :][:4])))], shard=shard).rows
        for shard in range(2)
    ]
    frames = [spark.createDataFrame(pa.Table.from_batches([table])).coalesce(1) for table in tables]
    return frames[0].union(frames[1])


def stored(client: HttpLogHub, shard: int) -> list[LogGroup]:
    begin, end = (client.get_cursor(COPY, shard, position) for position in ("begin", "end"))
    if decode(begin) == decode(end):
        return []
    pulled = client.pull_logs(COPY, shard, cursor=begin, count=1000, end_cursor=end)
    return [decode_group(group) for group in split(pulled.body)]


def flat(groups: list[LogGroup]) -> list[tuple[Any, ...]]:
    return [
        (group.topic, group.source, group.tags, log.time, log.time_ns, _texts(log))
        for group in groups
        for log in group.logs
    ]


def _texts(log: Log) -> tuple[tuple[str, str], ...]:
    texts = ((key, value.decode() if isinstance(value, bytes) else value) for key, value in log.contents)
    return tuple((str(key), value) for key, value in texts)


def run(spark: SparkSession, sql: str) -> DataFrame:
    return SqlTransform(sql)(logs_of(spark))


@pytest.mark.parametrize("over", ["http", "sdk"])
def test_select_all_keeps_everything_of_a_log(
    spark: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path, over: ClientKind
) -> None:
    assert writer(service, tmp_path, over=over).put(run(spark, "SELECT * FROM logs")) == 24
    copied = [log for shard in range(4) for log in flat(stored(client, shard))]
    assert sorted(copied) == sorted(flat(GROUPS))


def test_bytes_that_are_not_text_are_replaced(
    spark: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    sql = "SELECT unhex('61FF') AS b, map('k', CAST(unhex('FE') AS STRING)) AS contents FROM logs"
    assert writer(service, tmp_path).put(run(spark, sql)) == 24
    texts = {_texts(log) for shard in range(4) for group in stored(client, shard) for log in group.logs}
    assert texts == {(("k", "\ufffd"), ("b", "a\ufffd"))}


def test_columns_add_and_replace_contents_and_reserved_ones_change_the_group(
    spark: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    sql = """
        SELECT contents, __tags__, upper(contents['n']) AS n, NULL AS e, map('a', 1) AS m, 'new' AS __topic__,
               timestamp_micros(1700000000000005) AS __time__
        FROM logs WHERE __shard__ = 1 AND __cursor__ = 100 AND __index__ = 2
    """
    assert writer(service, tmp_path).put(run(spark, sql)) == 1
    (group,) = [group for shard in range(4) for group in stored(client, shard)]
    assert (group.topic, group.source, group.tags) == ("new", "", GROUPS[4].tags)
    (log,) = group.logs
    assert (log.time, log.time_ns, _texts(log)) == (
        1_700_000_000,
        5000,
        (("n", "1-0-2"), ("m", '{"a":1}')),
    )


def test_in_order_the_rows_of_a_shard_are_in_one_shard_in_their_order(
    spark: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    """The first keys of the two source shards belong to the shards 0 and 2 of the four target shards."""
    rows = run(spark, "SELECT * FROM logs WHERE contents['n'] NOT LIKE '%-1'")
    assert writer(service, tmp_path, keep_order=True).put(rows) == 16
    kept = [log for log in flat(GROUPS) if not dict(log[5])["n"].endswith("-1")]
    assert [flat(stored(client, shard)) for shard in range(4)] == [kept[:8], [], kept[8:], []]


def test_the_hash_key_determines_the_shard(
    spark: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    sql = "SELECT contents['n'] AS n, repeat(CAST(__index__ AS STRING), 32) AS __hash_key__ FROM logs"
    writer(service, tmp_path).put(run(spark, sql))
    by_shard = [{text[-1] for log in flat(stored(client, shard)) for _, text in log[5]} for shard in range(4)]
    assert by_shard == [{"0", "1", "2"}, set(), set(), set()]
    sql = "SELECT 'x' AS n, 'c' || repeat('0', 31) AS __hash_key__ FROM logs LIMIT 1"
    writer(service, tmp_path).put(run(spark, sql))
    assert len(stored(client, 3)) == 1


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT 'a' AS __tags__ FROM logs", "__tags__ must be a map of strings, not string"),
        ("SELECT map(1, 'a') AS __tags__ FROM logs", "__tags__ must be a map of strings"),
        ("SELECT 'now' AS __time__ FROM logs", "__time__ must be a timestamp, a date or unix seconds"),
    ],
)
def test_columns_that_cannot_be_written_are_found_without_rows(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path, sql: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        writer(service, tmp_path).put(SqlTransform(sql).check(empty_logs(spark)))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT contents FROM logs", "must return the column __shard__"),
        ("SELECT /*+ REPARTITION(3) */ * FROM logs", "moves rows between Spark's tasks"),
        (
            "SELECT /*+ MERGE(r) */ l.* FROM logs l JOIN range(9) r ON l.__shard__ = r.id",
            "moves rows between",
        ),
    ],
)
def test_a_query_that_loses_the_order_is_refused_if_the_group_consumes_in_order(
    spark: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path, sql: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        writer(service, tmp_path, keep_order=True).put(run(spark, sql))
    assert all(stored(client, shard) == [] for shard in range(4))
    assert writer(service, tmp_path).put(run(spark, sql)) == 24


def test_a_broadcast_join_keeps_the_order(
    spark: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    sql = "SELECT /*+ BROADCAST(r) */ l.* FROM logs l JOIN range(9) r ON l.__shard__ = r.id"
    assert writer(service, tmp_path, keep_order=True).put(run(spark, sql)) == 24
    expected = flat(GROUPS)
    assert [flat(stored(client, shard)) for shard in (0, 2)] == [expected[:12], expected[12:]]


def test_a_row_that_the_service_refuses_is_reported_with_size_and_logstore(
    spark: SparkSession, service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    rows = spark.range(1).selectExpr(f"repeat('x', {11 << 20}) AS a")
    with pytest.raises(Exception, match="PostBodyTooLarge") as raised:
        writer(service, tmp_path).put(rows)
    error = query_error(raised.value)
    assert error.reason == "PostBodyTooLarge"
    assert f"bytes for logstore {PROJECT}/{COPY}" in error.message
