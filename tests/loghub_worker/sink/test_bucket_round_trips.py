"""How many requests the commit log sends to a bucket of a real S3 server, and how many at the same time."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.files.bucket import PARALLEL, Bucket
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.sink.commit_log_child import BEGIN, END, BucketOfATest, LineWorker
from tests.loghub_worker.sink.conftest import bucket_in
from tests.loghub_worker.sink.unreliable_create import REAL_CREATE

HOME = "sink/_loghub/p/l/g"
GUARD_S = 120.0
THREADS = 12  # of a worker that saves checkpoints


@pytest.fixture
def described(tmp_path: Path, s3: S3Server) -> BucketOfATest:
    """A bucket whose objects are the files in ``sink``."""
    return bucket_in(tmp_path, s3)


def test_the_claims_of_many_shards_are_requested_at_the_same_time(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a request takes 20 ms, 32 shards would otherwise need more than a second for each batch."""
    worker = LineWorker(tmp_path, "w")
    shards = [worker.incarnation(shard) for shard in range(PARALLEL)]
    for shard in shards:
        worker.commit_log.open_shard(shard)
    together = threading.Barrier(PARALLEL)  # broken unless all arrive
    real_remove = Bucket.remove

    def create(bucket: Bucket, key: str, content: bytes) -> bool:
        if "/range-claims/" in key:
            together.wait(GUARD_S)
        return REAL_CREATE(bucket, key, content)

    def remove(bucket: Bucket, keys: list[str]) -> None:
        if "/range-claims/" in keys[0]:
            together.wait(GUARD_S)
        real_remove(bucket, keys)

    monkeypatch.setattr(Bucket, "create", create)
    worker.commit_log.stage("b").mkdir()
    ranges = [(shard, Range(shard.shard, BEGIN, END)) for shard in shards]
    worker.commit_log.publish("b", ranges, may_commit=lambda: True)
    monkeypatch.setattr(Bucket, "create", REAL_CREATE)
    for begin in range(END, END + PARALLEL):  # of one shard, whose last claim stays
        worker.commit_log.stage(f"b-{begin}").mkdir()
        one = [(shards[0], Range(0, begin, begin + 1))]
        worker.commit_log.publish(f"b-{begin}", one, may_commit=lambda: True)
    monkeypatch.setattr(Bucket, "remove", remove)
    worker.commit_log.acknowledge(shards[0], END + PARALLEL)
    assert len(list((tmp_path / HOME / "range-claims").iterdir())) == PARALLEL, "one of each shard"


@contextmanager
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts, under ``all``, the requests to buckets while the body runs."""
    real, lock, count = Bucket._connect, threading.Lock(), Counter[str]()

    def connect(bucket: Bucket) -> object:
        with lock:
            count["all"] += 1
        return real(bucket)

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "_connect", connect)
        yield count


@pytest.mark.parametrize("fails", [False, True], ids=["all removed", "one fails at first"])
def test_checkpoints_that_are_acknowledged_at_the_same_time_ask_for_each_claim_once(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Each of the shards would otherwise ask whether the claims of all others are gone: 32 shards sent 300
    requests for one batch."""
    worker = LineWorker(tmp_path, "w")
    shards = [worker.incarnation(shard) for shard in range(THREADS)]
    for shard in shards:
        worker.commit_log.open_shard(shard)
    for number, (begin, end) in enumerate([(BEGIN, END), (END, END + 1)], 1):  # the last claims stay
        worker.commit_log.stage(f"w-{number}").mkdir()
        ranges = [(shard, Range(shard.shard, begin, end)) for shard in shards]
        worker.commit_log.publish(f"w-{number}", ranges, may_commit=lambda: True)
    together = threading.Barrier(THREADS)
    real_remove = Bucket.remove

    def remove(bucket: Bucket, keys: list[str]) -> None:
        if "/range-claims/" in keys[0]:
            together.wait(GUARD_S)
            if fails and "/0-1-" in keys[0]:
                raise OSError("no answer")
        real_remove(bucket, keys)

    def acknowledge(shard: ShardIncarnation) -> bool:
        try:
            worker.commit_log.acknowledge(shard, END + 1)
        except OSError:
            return False
        return True

    with requests(monkeypatch) as sent, monkeypatch.context() as patch, ThreadPoolExecutor(THREADS) as pool:
        patch.setattr(Bucket, "remove", remove)
        done = list(pool.map(acknowledge, shards))
    decision = tmp_path / HOME / "batches/w-1.json"
    assert done == [not fails, *[True] * (THREADS - 1)]
    assert decision.exists() is fails
    # The claims, and either the decision or a look at the claim that is left.
    assert sent["all"] <= (THREADS + 1 if not fails else 2 * THREADS)
    worker.commit_log.acknowledge(shards[0], END + 1)
    assert not decision.exists()
    assert len(list((tmp_path / HOME).glob("range-claims/*"))) == THREADS


def test_a_claim_that_another_worker_removed_keeps_no_decision(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shard has moved since the batch."""
    before, after = LineWorker(tmp_path, "before"), LineWorker(tmp_path, "after")
    before.assign((0, 1))
    before.deliver(save=False)
    (first,) = (tmp_path / HOME).glob("batches/*")
    before.deliver(save=False)
    before.commit_log.acknowledge(before.incarnation(0), END)
    assert first.exists()
    after.assign((1,))
    assert not first.exists()


def test_the_requests_of_a_batch_do_not_depend_on_what_is_not_acknowledged(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = LineWorker(tmp_path, "w")
    worker.assign((0,))
    costs = []
    for begin in range(BEGIN, BEGIN + 12, 3):
        batch = f"w-{begin}"
        worker.commit_log.stage(batch).mkdir()
        (worker.commit_log.stage(batch) / "part-0.parquet").write_text("x")
        ranges = [(worker.incarnation(0), Range(0, begin, begin + 3))]
        with requests(monkeypatch) as sent:
            worker.commit_log.publish(batch, ranges, may_commit=lambda: True)
        costs.append(sent["all"])
    # The file, the claim, the openings, the decision, the copy, and what is staged no more.
    assert costs == [1 + 2 + 1 + 2 + 2 + 1] * 4
