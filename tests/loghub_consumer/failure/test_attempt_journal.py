"""The journal of attempts survives a process, and its loss does not stop one."""

from pathlib import Path

from loghub_consumer.batch_plan import Range
from loghub_consumer.failure.handler import AttemptJournal, Journal
from loghub_consumer.failure.policy import Cause, FailingRange, Failure, PastSkips, WaitState

FAILING = FailingRange(
    shard=3,
    begin=7,
    until=1007,
    failed_end=1007,
    log_groups=62,
    state=WaitState.RETRYING,
    not_before_s=1.5,
    failure=Failure(cause=Cause.TIMED_OUT, reason="BatchTimedOut", message="ü"),
)
SKIPS = PastSkips(shard=3, consecutive=2, ages_s=(9.5, 0.25), last_cursor=6)
JOURNAL = Journal(running=(Range(3, 7, 69),), failing=(FAILING,), skips=(SKIPS,))


def test_another_process_reads_what_was_written(tmp_path: Path) -> None:
    AttemptJournal(tmp_path / "attempts.json").write(JOURNAL)
    assert AttemptJournal(tmp_path / "attempts.json").read() == JOURNAL


def test_an_empty_journal_has_no_file(tmp_path: Path) -> None:
    journal = AttemptJournal(tmp_path / "attempts.json")
    journal.write(JOURNAL)
    journal.write(Journal())
    assert list(tmp_path.iterdir()) == []
    assert journal.read() == Journal()


def test_a_file_of_the_last_process_is_removed_by_an_empty_journal(tmp_path: Path) -> None:
    AttemptJournal(tmp_path / "attempts.json").write(JOURNAL)
    after = AttemptJournal(tmp_path / "attempts.json")
    after.read()
    after.write(Journal())
    assert list(tmp_path.iterdir()) == []


def test_a_flipped_bit_in_a_text_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "attempts.json"
    AttemptJournal(path).write(JOURNAL)
    path.write_bytes(path.read_bytes().replace("ü".encode(), b"\xc3\x3c"))
    assert AttemptJournal(path).read() == Journal()


def test_a_damaged_file_or_a_folder_in_its_place_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "attempts.json"
    path.write_bytes(b"{")
    assert AttemptJournal(path).read() == Journal()
    path.unlink()
    path.mkdir()
    (path / "file").touch()
    journal = AttemptJournal(path)
    assert journal.read() == Journal()
    journal.write(JOURNAL)
