"""How many requests the commit log sends to a bucket of a real S3 server, and how many at the same time."""

import threading
from pathlib import Path

import pytest

from loghub_worker.batch_plan import Range
from loghub_worker.sink.bucket import Bucket
from loghub_worker.sink.bucket_storage import PARALLEL
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.sink.commit_log_child import BEGIN, END, BucketOfATest, LineWorker
from tests.loghub_worker.sink.conftest import bucket_in
from tests.loghub_worker.sink.unreliable_create import REAL_CREATE

HOME = "sink/_loghub/p/l/g"
GUARD_S = 30.0


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
    for begin in range(END, END + PARALLEL - 1):  # of one shard, with the claim before
        worker.commit_log.stage(f"b-{begin}").mkdir()
        one = [(shards[0], Range(0, begin, begin + 1))]
        worker.commit_log.publish(f"b-{begin}", one, may_commit=lambda: True)
    monkeypatch.setattr(Bucket, "remove", remove)
    worker.commit_log.acknowledge(shards[0], END + PARALLEL)
    assert len(list((tmp_path / HOME / "range-claims").iterdir())) == PARALLEL - 1


def test_the_requests_of_a_batch_do_not_depend_on_what_is_not_acknowledged(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = LineWorker(tmp_path, "w")
    worker.assign((0,))
    real, requests = Bucket._connect, 0

    def connect(bucket: Bucket) -> object:
        nonlocal requests
        requests += 1
        return real(bucket)

    monkeypatch.setattr(Bucket, "_connect", connect)
    costs = []
    for begin in range(BEGIN, BEGIN + 12, 3):
        before = requests
        batch = f"w-{begin}"
        worker.commit_log.stage(batch).mkdir()
        (worker.commit_log.stage(batch) / "part-0.parquet").write_text("x")
        ranges = [(worker.incarnation(0), Range(0, begin, begin + 3))]
        worker.commit_log.publish(batch, ranges, may_commit=lambda: True)
        costs.append(requests - before)
    # The file, the claim, the openings, the decision, the copy, and what is staged no more.
    assert costs == [1 + 2 + 1 + 2 + 2 + 1] * 4
