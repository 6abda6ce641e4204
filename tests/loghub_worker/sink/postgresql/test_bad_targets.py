"""A database that is away, full, read-only or not ours: what the worker reports, and that nothing is lost."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from loghub.contract.sinks import PostgresqlSink
from loghub_consumer.batch_plan import Range
from loghub_worker.query.batch_errors import failure_of, is_outage
from loghub_worker.sink.batch_sink import InvalidSinkError, SinkUnreachableError
from loghub_worker.sink.files.commit_log import RangeTakenError
from loghub_worker.sink.postgresql.sink import make_table_sink
from loghub_worker.sink.sink_start import CredentialFiles
from tests.loghub_worker.sink.postgresql.line_worker import (
    BEGIN,
    CREATE,
    SHARDS,
    LineWorker,
    arrow,
    delivered,
    everything,
    sink_settings,
)
from tests.loghub_worker.support import GUARD_S
from tests.postgresql_server import DATABASE, PASSWORDS, USER, PostgresqlServer, write_credentials

pytestmark = pytest.mark.long  # each test has a database of a real server

FIRST = (Range(0, BEGIN, BEGIN + 10),)


def start(settings: PostgresqlSink, credentials: Path | None) -> None:
    """What a worker does with its sink before Spark starts."""
    make_table_sink(
        settings,
        CredentialFiles(credentials),
        group_path=("p", "l", "g"),
        owner="w-0",
        batch_timeout_s=60.0,
    )


def test_a_server_that_stops_and_starts_in_a_batch_loses_and_doubles_nothing(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    """It stops once after the rows were copied, once between two batches, and once as in a crash."""
    one = worker()
    one.assign(SHARDS)
    ranges = tuple(Range(shard, BEGIN, BEGIN + 10) for shard in SHARDS)
    batch = one.write(ranges)
    restart(server, signal.SIGINT)
    with pytest.raises(SinkUnreachableError, match=f"PostgreSQL at 127.0.0.1:{server.port}/{DATABASE}: "):
        one.sink.publish(batch, ranges, lambda: True)
    one.deliver()
    restart(server, signal.SIGINT)
    one.deliver()
    server.stop(signal.SIGQUIT)
    for _ in range(2):
        with pytest.raises(SinkUnreachableError, match="Connection refused"):
            one.deliver()
        with pytest.raises(SinkUnreachableError, match="Connection refused"):
            one.assign(SHARDS)
    server.start()
    one.run()
    assert delivered(server) == everything()


def restart(server: PostgresqlServer, how: signal.Signals) -> None:
    server.stop(how)
    server.start()


@contextmanager
def dropping(port: int, *, forward: bool) -> Iterator[int]:
    """The port of a proxy that ends the connection at its first COMMIT that follows a COPY. With `forward`,
    the server gets it and only the reply is lost."""
    done, forwarded, lost = threading.Event(), threading.Event(), threading.Event()

    def pump(client: socket.socket, server: socket.socket) -> None:
        copied = False
        while data := client.recv(1 << 16):
            copied = copied or b"COPY" in data
            if copied and b"COMMIT" in data and not done.is_set():
                done.set()
                if forward:
                    forwarded.set()
                    server.sendall(data)
                    assert lost.wait(GUARD_S), "the server did not reply"
                break
            server.sendall(data)
        for one in (client, server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def reply(server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                if forwarded.is_set() and not lost.is_set():
                    lost.set()  # the reply to COMMIT, which nobody gets
                    return
                client.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                upstream = socket.create_connection(("127.0.0.1", port))
                for target, ends in ((pump, (client, upstream)), (reply, (upstream, client))):
                    threading.Thread(target=guarded, args=(target, *ends), daemon=True).start()

    def guarded(target: Callable[..., None], *ends: socket.socket) -> None:
        with suppress(OSError):
            target(*ends)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield int(listener.getsockname()[1])
        assert done.is_set()


@pytest.mark.parametrize("forward", [True, False])
def test_a_lost_reply_to_commit_is_looked_up(
    worker: Callable[..., LineWorker], server: PostgresqlServer, forward: bool
) -> None:
    with dropping(server.port, forward=forward) as port:
        one = worker(port)
        one.assign(SHARDS)
        if forward:
            one.deliver()
        else:
            with pytest.raises(SinkUnreachableError):
                one.deliver()
        assert delivered(server).total() == (20 if forward else 0)
        one.run()
    assert delivered(server) == everything()


def test_if_a_lost_reply_cannot_be_looked_up_the_range_is_found_when_it_is_opened_again(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    with dropping(server.port, forward=True) as port:
        one = worker(port)
        one.assign(SHARDS)
        one.sink._is_committed = unanswered  # type: ignore[method-assign]
        with pytest.raises(SinkUnreachableError, match="no answer"):
            one.deliver()
        assert delivered(server).total() == 20
        with pytest.raises(RangeTakenError, match="another batch delivers one of the ranges"):
            one.deliver()
        one.run()
    assert delivered(server) == everything()


def unanswered(*_: object) -> bool:
    raise SinkUnreachableError("no answer")


def test_a_pooled_connection_that_the_server_ended_is_replaced(
    worker: Callable[..., LineWorker], server: PostgresqlServer
) -> None:
    one = worker()
    one.assign(SHARDS)
    one.deliver()
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'")
    one.run()
    assert delivered(server) == everything()


def test_a_worker_has_one_connection(worker: Callable[..., LineWorker], server: PostgresqlServer) -> None:
    counts = []
    query = f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{USER}' AND state <> 'idle'"
    one = worker(at_step=lambda step: counts.append((step, server.rows(query)[0][0])))
    one.run()
    assert {count for step, count in counts if step == "copied"} == {1}
    assert max(count for _, count in counts) == 1
    assert server.rows(query.partition(" AND state")[0]) == [(1,)]


def test_a_new_password_is_used_for_the_next_connection(
    worker: Callable[..., LineWorker], server: PostgresqlServer, credentials: Path
) -> None:
    one = worker()
    one.assign(SHARDS)
    one.deliver()
    server.execute(f"ALTER ROLE {USER} PASSWORD 'second'")
    try:
        one.deliver()
        server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'")
        with pytest.raises(SinkUnreachableError, match="password authentication failed") as caught:
            one.deliver()
        assert PASSWORDS[USER] not in str(caught.value)
        (credentials / "password").unlink()
        with pytest.raises(SinkUnreachableError, match="the sink needs 'password'"):
            one.deliver()
        write_credentials(credentials, password="second")
        one.run()
    finally:
        server.execute(f"ALTER ROLE {USER} PASSWORD '{PASSWORDS[USER]}'")
    assert delivered(server) == everything()


STATEMENTS = {
    "a table that is gone": ("DROP TABLE lines", CREATE, "does not exist.*create the table again"),
    "a column that is gone": (
        "ALTER TABLE lines RENAME line TO other",
        "ALTER TABLE lines RENAME other TO line",
        "does not exist.*lost a column of the query",
    ),
    "no rights": (
        f"REVOKE INSERT ON lines FROM {USER}; ALTER TABLE lines OWNER TO admin",
        f"GRANT INSERT ON lines TO {USER}",
        "permission denied for table lines.*grant the user the right",
    ),
    "read-only, as a standby is": (
        f"ALTER DATABASE {DATABASE} SET default_transaction_read_only = on",
        f"ALTER DATABASE {DATABASE} RESET default_transaction_read_only",
        "session is read-only",
    ),
    "no connection left": (
        f"ALTER ROLE {USER} CONNECTION LIMIT 0",
        f"ALTER ROLE {USER} CONNECTION LIMIT -1",
        "too many connections",
    ),
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_no_batch_is_lost_while_the_database_refuses_all(
    worker: Callable[..., LineWorker], server: PostgresqlServer, case: str
) -> None:
    spoil, repair, message = STATEMENTS[case]
    one = worker()
    one.assign(SHARDS)
    server.execute(spoil)
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{USER}'")
    try:
        for _ in range(2):
            with pytest.raises(SinkUnreachableError, match=message) as caught:
                one.deliver()
            assert is_outage(caught.value)
            assert failure_of(caught.value).reason == "SinkUnavailable"
    finally:
        server.execute(repair, database=DATABASE if "TABLE" in repair or "GRANT" in repair else "postgres")
        server.execute(f"ALTER TABLE lines OWNER TO {USER}")
    one.run()
    assert delivered(server) == everything()


def test_a_full_disk_loses_nothing(worker: Callable[..., LineWorker], server: PostgresqlServer) -> None:
    """No file may grow beyond a limit inside a page of the table, so that the server finds no room for that
    page. The limit is larger than a file of its write-ahead log, which must be written."""
    server.execute("ALTER TABLE lines ALTER line SET STORAGE PLAIN")  # one row a page
    server.stop()
    server.start(max_file=(16 << 20) + 100)
    one = worker()
    one.assign(SHARDS)
    one.deliver()
    with pytest.raises(SinkUnreachableError, match="the disk of the server is full") as caught:
        one.sink.copy("large", one.copy_statement, arrow(["x" * 6000] * 3000))
    one.sink.abort("large")
    assert is_outage(caught.value)
    restart(server, signal.SIGINT)
    one.run()
    assert delivered(server) == everything()


UNAVAILABLE: dict[str, tuple[dict[str, object], str]] = {
    "no host of this name": ({"host": "no-such-host.invalid"}, "no-such-host.invalid"),
    "no host name": ({"host": "a..b"}, "label empty or too long"),
    "another password": ({"password": "wrong"}, "password authentication failed"),
    "no database": ({"database": "absent"}, 'database "absent" does not exist'),
    "no TLS on the server": ({"ssl_mode": "verify-full"}, "server does not support SSL"),
}


@pytest.mark.parametrize("case", UNAVAILABLE)
def test_at_the_start_a_server_that_cannot_be_used_is_unavailable(
    server: PostgresqlServer, credentials: Path, case: str
) -> None:
    changes, message = UNAVAILABLE[case]
    given = dict(changes)
    if "password" in given:
        write_credentials(credentials, password=str(given.pop("password")))
    with pytest.raises(SinkUnreachableError, match=message):
        start(msgspec.structs.replace(sink_settings(server.port), **given), credentials)


INVALID = {
    "no table": ("", "there is no table public.lines: create it"),
    "a view": ("CREATE VIEW lines AS SELECT 1 AS line", "public.lines is no table"),
    "an unlogged table": ("CREATE UNLOGGED TABLE lines (line text)", "is unlogged"),
    # The table itself is neither of these.
    "an unlogged partition": (
        f"{CREATE} PARTITION BY LIST (line); CREATE UNLOGGED TABLE part PARTITION OF lines DEFAULT",
        "the partition part of public.lines is unlogged",
    ),
    "a foreign partition of a partition": (
        f"{CREATE} PARTITION BY LIST (line);"
        " CREATE TABLE part PARTITION OF lines DEFAULT PARTITION BY LIST (line);"
        " CREATE FOREIGN DATA WRAPPER w; CREATE SERVER other FOREIGN DATA WRAPPER w;"
        " CREATE FOREIGN TABLE elsewhere PARTITION OF part DEFAULT SERVER other",
        "the partition elsewhere of public.lines is a foreign table",
    ),
    "no right to insert": (
        f"CREATE TABLE lines (line text); GRANT SELECT ON lines TO {USER}",
        "the user may not INSERT into public.lines",
    ),
    "row-level security": (
        f"{CREATE}; ALTER TABLE lines ENABLE ROW LEVEL SECURITY; GRANT INSERT ON lines TO {USER}",
        "row-level security",
    ),
    "no right to create": (
        f"{CREATE}; REVOKE CREATE ON SCHEMA public FROM PUBLIC; ALTER SCHEMA public OWNER TO admin;",
        "loghub_shards and loghub_ranges are missing .* grant CREATE on the schema",
    ),
    "foreign tables of records": (
        "CREATE TABLE loghub_shards (); CREATE TABLE loghub_ranges ()",
        "the user may not SELECT, INSERT, UPDATE, DELETE in loghub_shards",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_at_the_start_a_table_that_cannot_be_the_target_is_invalid(
    server: PostgresqlServer, credentials: Path, case: str
) -> None:
    prepare, message = INVALID[case]
    if prepare:
        server.execute(prepare)
    with pytest.raises(InvalidSinkError, match=message):
        start(sink_settings(server.port), credentials)


def test_without_credentials_the_sink_is_invalid(server: PostgresqlServer, tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(InvalidSinkError, match="the sink needs 'password'"):
            start(sink_settings(server.port), folder)
