"""What the database refuses because of the rows is a failure of these logs, and no outage."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.failure.policy import Cause
from loghub_worker.query.batch_errors import failure_of, is_outage
from loghub_worker.sink.batch_sink import RowsRejectedError, SinkUnreachableError
from loghub_worker.sink.postgresql.database import SinkDatabase
from loghub_worker.sink.sink_start import CredentialFiles
from tests.loghub_worker.sink.postgresql.line_worker import BEGIN, LineWorker, arrow, delivered, sink_settings
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.long  # each test has a database of a real server

FIRST = (Range(0, BEGIN, BEGIN + 10),)
REFUSED = {
    "a NUL character": ("ALTER TABLE lines ADD other text", "x\0y", "NUL, or is not valid UTF-8: change it"),
    "a violated constraint": (
        "ALTER TABLE lines ADD CHECK (line <> 'bad')",
        "bad",
        "violates check constraint",
    ),
    "a constraint that is checked at the end": (
        "ALTER TABLE lines ADD UNIQUE (line) DEFERRABLE INITIALLY DEFERRED; INSERT INTO lines VALUES ('bad')",
        "bad",
        "duplicate key value",
    ),
    "another type": (
        "ALTER TABLE lines ALTER line TYPE integer USING 0",
        "bad",
        "invalid input syntax .*line",
    ),
    "a text that is too long": ("ALTER TABLE lines ALTER line TYPE varchar(2)", "bad", "value too long"),
    # What RAISE gives without a code, and a code of the user's own.
    **{
        f"a trigger that refuses with {code}": (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '{code}'; END $$;"
            " CREATE TRIGGER t BEFORE INSERT ON lines FOR EACH ROW EXECUTE FUNCTION refuse()",
            "bad",
            "not this one",
        )
        for code in ("P0001", "LG001")
    },
    "a trigger that refuses at the end": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'LG001'; END $$;"
        " CREATE CONSTRAINT TRIGGER t AFTER INSERT ON lines DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()",
        "bad",
        "not this one",
    ),
}


@pytest.mark.parametrize(
    ("codes", "is_outage"),
    [
        # Connection, standby, login, what is missing, rights, locks, resources, a stop, damaged data.
        ("08006 25006 28P01 3D000 3F000 40001 40P01 42501 42703 42P01 53100 53300 55P03 57P01 58030", True),
        ("F0000 HV00N XX001 XX002", True),
        # Data, constraints, limits, CHECK OPTION, functions of any language, and what only a trigger has:
        # ASSERT, a code of the user's own, what an extension raises without a code.
        ("21000 22P02 23505 54000 44000 P0001 P0004 2F003 38000 39004 0A000 27000 LG001 XX000", False),
        ("57014", False),  # fewer rows may not take so long
    ],
)
def test_an_error_of_a_statement_with_rows_is_due_to_them_unless_its_code_is_that_of_an_outage(
    codes: str, is_outage: bool, credentials: Path
) -> None:
    database = SinkDatabase(
        sink_settings(1), CredentialFiles(credentials), client="w-0", statement_timeout_s=60.0
    )
    for code in codes.split():
        error = psycopg.Error("refused")
        error.sqlstate = code
        kind = SinkUnreachableError if is_outage else RowsRejectedError
        assert type(database.translated(error, with_rows=True)) is kind, code
        assert type(database.translated(error)) is SinkUnreachableError, "no rows are involved"


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_the_table_refuses_are_a_failure_of_those_logs(
    worker: Callable[..., LineWorker], server: PostgresqlServer, case: str
) -> None:
    """So the failure policy decides about them, and the worker goes on."""
    prepare, text, message = REFUSED[case]
    server.execute(prepare)
    one = worker()
    one.assign((0,))
    before = delivered(server).total()

    def deliver() -> None:
        one.sink.copy("bad", one.copy_statement, arrow([text]))
        one.sink.publish("bad", FIRST, lambda: True)

    with pytest.raises(RowsRejectedError, match=message) as caught:
        deliver()
    one.sink.abort("bad")
    assert not is_outage(caught.value)
    assert failure_of(caught.value).cause is Cause.REJECTED
    assert delivered(server).total() == before
    # A batch that only skips it is committed.
    one.sink.publish("skipped", FIRST, lambda: True)
