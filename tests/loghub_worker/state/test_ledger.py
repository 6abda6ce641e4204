"""The ledger of a state over restarts: what the state consists of, and what may be continued; what a worker
reports of the state in its status and in its metrics.
"""

from pathlib import Path

import pytest
from prometheus_client.registry import CollectorRegistry

from loghub.contract.worker import KeptState
from loghub_consumer.batch_plan import Range
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import Membership, MembershipTimings
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.metrics import Figures, answer
from loghub_worker.state import checkpoint_folder
from loghub_worker.state.ledger import StateFigures, StateIdentity, StateLedger, Why
from loghub_worker.status import Moment, QueryProgress, ShardReadings, member_of, status_of

OURS = StateIdentity(pipeline="sql", reset="")
SHARD = ShardIncarnation(shard=0, created=1)


def opened(folder: Path, identity: StateIdentity = OURS) -> StateLedger:
    return StateLedger(folder / "state", identity)


def continued(ledger: StateLedger, position: int, *, is_first: bool = False, moved: bool = False) -> int:
    return ledger.continue_at(SHARD, position, is_first=is_first, moved=moved)


def deliver(ledger: StateLedger, batch: int, end: int, *, begin: int = 0) -> None:
    """A batch that Spark has ended."""
    ranges = (Range(0, begin, end),)
    ledger.publishing(batch, ranges)
    ledger.delivered(batch, ranges)
    commit(ledger, batch)


def commit(ledger: StateLedger, batch: int) -> None:
    commits = ledger.checkpoint / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    (commits / str(batch)).touch()


def lacking(ledger: StateLedger) -> dict[int, tuple[int, str]]:
    return {shard: (state.since, state.why) for shard, state in ledger.incomplete({0, 1}).items()}


def test_a_state_that_has_every_log_continues_after_its_last_batch(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    assert continued(ledger, 0, is_first=True) == 0
    deliver(ledger, 0, 10)
    again = opened(tmp_path)
    # Whatever the service has as checkpoint: it may lag behind what the sink has.
    assert [continued(again, position) for position in (0, 7, 10)] == [10, 10, 10]
    assert lacking(again) == {}


def test_what_spark_has_written_is_durable_before_the_sink_may_have_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file and each folder with a new name in it is flushed once."""
    ledger = opened(tmp_path)
    flushed: list[list[str]] = []

    def note(paths: list[Path]) -> None:
        assert not ledger.may_be_delivered(len(flushed))
        flushed.append(sorted(str(path.relative_to(ledger.checkpoint)) for path in paths))

    monkeypatch.setattr(checkpoint_folder, "sync_all", note)
    for batch in range(2):
        for folder in ("offsets", "state/0"):
            (ledger.checkpoint / folder).mkdir(parents=True, exist_ok=True)
            (ledger.checkpoint / folder / f"{batch}").touch()
        ledger.publishing(batch, (Range(0, batch, batch + 1),))
        assert ledger.may_be_delivered(batch)
    assert flushed == [
        [".", "offsets", "offsets/0", "state", "state/0", "state/0/0"],
        ["offsets", "offsets/1", "state/0", "state/0/1"],
    ]


def test_a_shard_that_another_worker_has_read_on_lacks_logs(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    deliver(ledger, 0, 10)
    assert continued(ledger, 15) == 15
    assert lacking(opened(tmp_path)) == {0: (15, Why.ELSEWHERE)}
    assert lacking(ledger) == {0: (15, Why.ELSEWHERE)}


def test_a_shard_without_the_state_of_its_earlier_logs_lacks_them(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    assert continued(ledger, 5) == 5
    assert lacking(ledger) == {0: (5, Why.ELSEWHERE)}


@pytest.mark.parametrize("is_delivered", [False, True])
def test_a_batch_that_the_sink_has_is_no_gap(tmp_path: Path, is_delivered: bool) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    ledger.publishing(0, (Range(0, 0, 10),))
    if is_delivered:
        ledger.delivered(0, (Range(0, 0, 10),))
    again = opened(tmp_path)
    assert (again.is_delivered(0), again.may_be_delivered(0)) == (is_delivered, not is_delivered)
    assert continued(again, 10) == 10
    assert lacking(again) == {}


def test_a_batch_that_is_given_up_is_a_gap_where_its_shard_went_on(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    ledger.publishing(0, (Range(0, 0, 10),))
    continued(ledger, 10)
    ledger.rolled_back({0: 10})
    assert lacking(opened(tmp_path)) == {0: (10, Why.ELSEWHERE)}


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (StateIdentity(pipeline="other", reset=""), Why.CHANGED),
        (StateIdentity(pipeline="sql", reset="one"), Why.RESET),
    ],
)
def test_the_state_of_anything_else_is_removed(tmp_path: Path, other: StateIdentity, why: Why) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    deliver(ledger, 0, 10)
    again = opened(tmp_path, other)
    assert not again.checkpoint.exists()
    assert continued(again, 10) == 10
    assert lacking(again) == {0: (10, why)}


@pytest.mark.parametrize("damage", ["no ledger", "no JSON", "other batches"])
def test_a_damaged_state_is_removed(tmp_path: Path, damage: str) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    deliver(ledger, 0, 10)
    file = tmp_path / "state" / "ledger.json"
    if damage == "no ledger":
        file.unlink()
    elif damage == "no JSON":
        file.write_text("{")
    else:
        commit(ledger, 7)
    again = opened(tmp_path)
    assert not again.checkpoint.exists()
    continued(again, 10)
    assert lacking(again) == {0: (10, Why.UNUSABLE)}


def test_a_checkpoint_that_was_moved_back_removes_the_state_and_keeps_the_other_shards(
    tmp_path: Path,
) -> None:
    other = ShardIncarnation(shard=1, created=1)
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    ledger.continue_at(other, 0, is_first=True, moved=False)
    deliver(ledger, 0, 10)
    assert continued(ledger, 4, moved=True) == 4
    assert ledger.is_discarded
    ledger.empty({0: 4, 1: 0})
    assert not ledger.is_discarded
    assert not ledger.checkpoint.exists()
    assert lacking(ledger) == {0: (4, Why.RESET), 1: (0, Why.RESET)}
    assert not ledger.is_delivered(0)


def test_a_shard_that_is_another_one_of_the_same_number_is_discarded(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    deliver(ledger, 0, 10)
    created_again = ShardIncarnation(shard=0, created=2)
    assert ledger.continue_at(created_again, 3, is_first=True, moved=False) == 3
    assert lacking(ledger) == {}


@pytest.mark.parametrize("flipped", [b"sql", b"since"])
def test_a_ledger_with_a_flipped_bit_is_no_ledger(tmp_path: Path, flipped: bytes) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    deliver(ledger, 0, 10)
    file = tmp_path / "state" / "ledger.json"
    content = file.read_bytes()
    assert flipped in content
    file.write_bytes(content.replace(flipped, bytes([flipped[0] ^ 0x80]) + flipped[1:]))
    again = opened(tmp_path)
    assert continued(again, 10) == 10
    assert lacking(again) == {0: (10, Why.UNUSABLE)}


def test_a_cause_that_a_later_release_wrote_is_an_unusable_state(tmp_path: Path) -> None:
    opened(tmp_path)
    file = tmp_path / "state" / "ledger.json"
    file.write_bytes(file.read_bytes().replace(b'"why":"Elsewhere"', b'"why":"Borrowed"'))
    again = opened(tmp_path)
    continued(again, 3)
    assert lacking(again) == {0: (3, Why.UNUSABLE)}


def late(rows: int, *, at_s: float, state_rows: int = 0) -> StateFigures:
    return StateFigures(rows=state_rows, late_rows=rows, late_unix_s=at_s)


def test_the_late_rows_of_a_batch_count_once_however_often_it_is_computed(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    assert ledger.figures is None
    ledger.measured(0, late(3, at_s=10.0))  # the worker ends before the sink has it
    ledger = opened(tmp_path)
    assert ledger.figures is None
    ledger.measured(0, late(3, at_s=20.0))
    ledger.measured(0, late(4, at_s=30.0, state_rows=9))  # tried again
    deliver(ledger, 0, 10)
    ledger.measured(0, late(4, at_s=40.0))  # computed once more, for its state only
    assert opened(tmp_path).figures == late(4, at_s=30.0, state_rows=9)
    deliver(ledger, 1, 20, begin=10)
    assert ledger.figures == late(4, at_s=30.0, state_rows=9), "those of another batch are not its"
    ledger.measured(2, late(0, at_s=50.0, state_rows=8))
    deliver(ledger, 2, 30, begin=20)
    assert ledger.figures == late(4, at_s=30.0, state_rows=8)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_late_rows_stay_known_after_the_state_is_removed(tmp_path: Path, is_restarted: bool) -> None:
    ledger = opened(tmp_path)
    continued(ledger, 0, is_first=True)
    ledger.measured(0, late(4, at_s=30.0, state_rows=9))
    deliver(ledger, 0, 10)
    if is_restarted:
        ledger = opened(tmp_path, StateIdentity(pipeline="another", reset=""))
    else:
        ledger.discard(Why.UNUSABLE)
        ledger.empty({0: 10})
    assert ledger.figures == late(4, at_s=30.0)


def test_the_state_of_a_stateful_pipeline_is_in_the_status_and_the_metrics() -> None:
    figures = StateFigures(rows=5, bytes=600, watermark_ms=1500, late_rows=3, late_unix_s=940.0)
    status = status_of(
        member_of(Membership(MembershipTimings(interval_s=5, timeout_s=30, margin_s=4))),
        name="w-0",
        now=Moment(monotonic_s=103, unix_s=1000.0),
        error=ReportedError(),
        query=QueryProgress(batch_hung_after_s=630, state=figures),
        readings=ShardReadings(),
    )
    assert status.state == KeptState(rows=5, bytes=600, watermark_s=1.5, late_rows=3, late_age_s=60.0)
    registry = CollectorRegistry()
    registry.register(Figures(lambda: status, tuple))
    text = answer("/metrics", registry, status, now_unix_s=1000)[2].decode()
    assert "loghub_worker_state_rows 5.0" in text
    assert "loghub_worker_state_bytes 600.0" in text
    assert "loghub_worker_watermark_timestamp_seconds 1.5" in text
    assert "loghub_worker_rows_dropped_as_late_total 3.0" in text
