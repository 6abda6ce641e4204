"""A bucket of a real S3 server as a sink: which storages are refused, what errors say, what is left over."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loghub.contract.sinks import JsonSink, ParquetSink, S3Settings
from loghub_worker.sink.batch_sink import InvalidSinkError, SinkOwner
from loghub_worker.sink.delta.sink import s3_options
from loghub_worker.sink.delta.table import DeltaGroupTable
from loghub_worker.sink.files import bucket as bucket_module
from loghub_worker.sink.files.bucket import PART_BYTES, Bucket, BucketStorage, ObjectStorageError
from loghub_worker.sink.files.commit_log import TOMBSTONE_S, CommitLog, RangeTakenError
from loghub_worker.sink.files.sink import make_files_sink
from loghub_worker.sink.sink_start import NO_CREDENTIALS, CredentialFiles
from tests.cluster.s3_server import S3Server, running_s3_server
from tests.loghub_worker.sink.commit_log_child import (
    BEGIN,
    END,
    GROUP_PATH,
    SHARDS,
    BucketOfATest,
    LineWorker,
    date_back,
    delivered,
    everything,
    storage_in,
)
from tests.loghub_worker.sink.conftest import bucket_in
from tests.loghub_worker.sink.unreliable_create import REAL_CREATE

HOME = "sink/_loghub/p/l/g"


@pytest.fixture
def described(tmp_path: Path, s3: S3Server) -> BucketOfATest:
    """A bucket whose objects are the files in ``sink``."""
    return bucket_in(tmp_path, s3)


def storage(tmp_path: Path) -> BucketStorage:
    found = storage_in(tmp_path, "w")
    assert isinstance(found, BucketStorage)
    return found


# Which storages are refused


def test_a_storage_with_create_only_writes_is_accepted_and_left_as_it_was(
    tmp_path: Path, described: BucketOfATest
) -> None:
    storage(tmp_path).try_out()
    assert [path for path in (tmp_path / "sink").rglob("*") if path.is_file()] == []


def ignores_the_condition(bucket: Bucket, key: str, content: bytes) -> bool:
    """As storages without If-None-Match do."""
    bucket_module.obstore.put(bucket._connect(), key, content)
    return True


class ChecksBeforeItWrites:
    """A storage that looks whether the key exists, and writes later: right for one writer at a time."""

    def __init__(self) -> None:
        self._checked = threading.Barrier(8)

    def __call__(self, bucket: Bucket, key: str, content: bytes) -> bool:
        is_absent = not bucket.exists(key)
        if is_absent:
            self._checked.wait()
            ignores_the_condition(bucket, key, content)
        return is_absent


@pytest.mark.parametrize("create", [ignores_the_condition, ChecksBeforeItWrites()])
def test_a_storage_that_lets_two_writers_win_is_refused(
    tmp_path: Path,
    described: BucketOfATest,
    monkeypatch: pytest.MonkeyPatch,
    create: Callable[[Bucket, str, bytes], bool],
) -> None:
    monkeypatch.setattr(Bucket, "create", lambda bucket, key, content: create(bucket, key, content))
    with pytest.raises(InvalidSinkError, match="lets several writers create one object"):
        storage(tmp_path).try_out()
    assert [path for path in (tmp_path / "sink").rglob("*") if path.is_file()] == []


def test_a_storage_that_reports_a_conflict_and_overwrites_is_refused(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(bucket: Bucket, key: str, content: bytes) -> bool:
        is_absent = REAL_CREATE(bucket, key, content)
        ignores_the_condition(bucket, key, content)
        return is_absent

    monkeypatch.setattr(Bucket, "create", create)
    with pytest.raises(InvalidSinkError, match="lets several writers create one object"):
        storage(tmp_path).try_out()


def test_a_storage_with_a_late_listing_is_refused(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bucket, "times", lambda bucket, folder: {})
    with pytest.raises(InvalidSinkError, match="does not list what was just written"):
        storage(tmp_path).try_out()


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        ("s3://", S3Settings(), "s3://bucket/prefix"),
        ("s3://b", S3Settings(endpoint="http://x:1"), "allowHttp"),
        ("s3://b", S3Settings(endpoint="https://x:99999"), "no valid host and port"),
        ("s3://b", S3Settings(endpoint="https://[::::]"), "no valid host and port"),
        ("s3://b", S3Settings(endpoint="https://x.256.0.0.1"), "no valid host and port"),
        ("s3://b", S3Settings(endpoint="https://127.0.0.1", virtual_hosted=True), "host .* is an address"),
    ],
)
def test_settings_that_cannot_work_are_refused(path: str, settings: S3Settings, message: str) -> None:
    with pytest.raises(InvalidSinkError, match=message):
        Bucket(path, settings, NO_CREDENTIALS)


def test_a_secret_without_the_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSinkError, match="accessKeyId"):
        Bucket("s3://b", S3Settings(), CredentialFiles(tmp_path))


# Bad targets


def make(sink: ParquetSink | JsonSink, keys: Path, scratch: Path) -> object:
    owner = SinkOwner(group_path=GROUP_PATH, consumer="w", scratch=scratch)
    return make_files_sink(sink, CredentialFiles(keys), owner)


def test_a_wrong_key_and_an_absent_bucket_say_what_to_do(tmp_path: Path, s3: S3Server) -> None:
    settings = S3Settings(endpoint=s3.endpoint, allow_http=True)
    s3.bucket("denied")
    wrong = s3.credentials(tmp_path / "wrong", secret_access_key="somethingElse")
    with pytest.raises(OSError, match=r"SignatureDoesNotMatch.*secretAccessKey does not belong") as caught:
        make(ParquetSink(path="s3://denied/a", s3=settings), wrong, tmp_path)
    assert "somethingElse" not in str(caught.value)
    assert s3.access_key_id not in str(caught.value)
    right = s3.credentials(tmp_path / "right")
    with pytest.raises(OSError, match=r"NoSuchBucket.*create the bucket"):
        make(JsonSink(path="s3://nowhere/a", s3=settings), right, tmp_path)


def test_an_absent_bucket_is_not_an_absent_record(tmp_path: Path, s3: S3Server) -> None:
    """Otherwise a decision that was made would count as not made while a bucket is away."""
    settings = S3Settings(endpoint=s3.endpoint, allow_http=True)
    bucket = Bucket("s3://nowhere", settings, CredentialFiles(s3.credentials(tmp_path / "keys")))
    for ask in (bucket.read, bucket.exists, bucket.times, lambda key: bucket.copy(key, "b")):
        with pytest.raises(ObjectStorageError, match="NoSuchBucket"):
            ask("a")


class NoBackend(BaseHTTPRequestHandler):
    """What an ingress answers while it has no backend."""

    status = 404

    def do_GET(self) -> None:
        self.send_error(self.status, "default backend")

    do_PUT = do_DELETE = do_GET  # noqa: N815 - names of the library

    def log_message(self, *_: object) -> None: ...


class Busy(NoBackend):
    """What a storage answers if two requests mean one object."""

    status = 409


def test_a_conflict_of_two_requests_is_an_outage(tmp_path: Path, s3: S3Server) -> None:
    """It is not that of an object which exists: only `create` requests that there be none."""
    (tmp_path / "file").write_bytes(b"1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = S3Settings(endpoint=f"http://127.0.0.1:{server.server_port}", allow_http=True)
        bucket = Bucket("s3://b", settings, CredentialFiles(s3.credentials(tmp_path / "keys")))
        requests: list[Callable[[str], object]] = [
            bucket.read, lambda key: bucket.copy(key, "b"), lambda key: bucket.remove([key]),
            lambda key: bucket.upload(key, tmp_path / "file"),
        ]  # fmt: skip
        try:
            assert not bucket.create("a", b"1")
            for request in requests:
                with pytest.raises(ObjectStorageError, match="the storage answered 409"):
                    request("a")
        finally:
            server.shutdown()


def test_a_404_that_is_not_the_storages_is_not_an_absent_record(tmp_path: Path, s3: S3Server) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), NoBackend) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = S3Settings(endpoint=f"http://127.0.0.1:{server.server_port}", allow_http=True)
        bucket = Bucket("s3://b", settings, CredentialFiles(s3.credentials(tmp_path / "keys")))
        requests: list[Callable[[str], object]] = [
            bucket.read, bucket.exists, bucket.times, lambda key: bucket.copy(key, "b"),
            lambda key: bucket.create(key, b""), lambda key: bucket.remove([key]),
        ]  # fmt: skip
        try:
            for request in requests:
                with pytest.raises(ObjectStorageError, match="the storage answered 404"):
                    request("a")
        finally:
            server.shutdown()


def test_no_line_comes_twice_if_a_claim_is_answered_by_404_once(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two batches after the checkpoint, the claim of the first would count as absent, and the second as
    left from before a reset."""
    first = LineWorker(tmp_path, "first")
    first.assign(SHARDS)
    first.deliver(save=False)
    first.deliver(save=False)
    real, answers = bucket_module.obstore.get, ["GET .. status code: 404 Not Found: default backend"]

    def get(store: Any, path: str) -> Any:
        if f"range-claims/0-1-{BEGIN}-0" in path and answers:
            raise FileNotFoundError(answers.pop())
        return real(store, path)

    monkeypatch.setattr(bucket_module.obstore, "get", get)
    second = LineWorker(tmp_path, "second")
    for _ in range(5):  # as the shard manager and the query do after an error
        with suppress(ObjectStorageError, RangeTakenError):
            second.run()
    assert answers == []
    assert delivered(tmp_path) == everything()


def test_a_rotated_key_takes_effect_with_the_next_request(
    tmp_path: Path, s3: S3Server, described: BucketOfATest
) -> None:
    bucket = described.open()
    assert bucket.create("a", b"1")
    s3.credentials(Path(described.credentials), secret_access_key="old")
    with pytest.raises(ObjectStorageError, match="SignatureDoesNotMatch"):
        bucket.read("a")
    s3.credentials(Path(described.credentials))
    assert bucket.read("a") == b"1"
    (Path(described.credentials) / "secretAccessKey").unlink()
    with pytest.raises(ObjectStorageError, match="lacks secretAccessKey"):
        bucket.read("a")


@pytest.mark.parametrize("key", [b"a\nb", b"a\0b", "ü".encode(), b"\xff"])
def test_a_key_that_cannot_be_sent_is_an_outage(tmp_path: Path, described: BucketOfATest, key: bytes) -> None:
    """The libraries would end the worker's thread."""
    (Path(described.credentials) / "accessKeyId").write_bytes(key)
    settings = S3Settings(endpoint=described.endpoint, allow_http=True)
    options = partial(s3_options, settings, CredentialFiles(Path(described.credentials)))
    table = DeltaGroupTable(described.url, group_path=GROUP_PATH, options=options, read=lambda _: None)
    for request in (lambda: described.open().read("a"), table.exists):
        with pytest.raises(OSError, match=r"characters that no key has|not UTF-8") as caught:
            request()
        assert key.decode(errors="replace") not in str(caught.value)


def test_a_file_larger_than_a_part_arrives_whole(tmp_path: Path, described: BucketOfATest) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * (PART_BYTES // 256 * 2 + 1))
    described.open().upload("large", file)
    assert (tmp_path / "sink" / "large").read_bytes() == file.read_bytes()


@pytest.fixture
def own_server(tmp_path: Path, versitygw: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server that may be stopped; requests to it are given up soon."""
    monkeypatch.setattr(bucket_module, "RETRY_TIMEOUT_S", 1)
    monkeypatch.setattr(bucket_module, "REQUEST_TIMEOUT_S", 0.3)
    with running_s3_server(versitygw, tmp_path / "server") as server:
        yield server


@pytest.mark.parametrize("outage", ["ended", "silent"])
def test_a_worker_goes_on_after_an_outage_in_a_batch(
    tmp_path: Path, own_server: S3Server, outage: str
) -> None:
    bucket_in(tmp_path, own_server)
    steps: list[str] = []

    def at_step(step: str) -> None:
        steps.append(step)
        if step == "all ranges claimed" and steps.count(step) == 2:
            own_server.stop() if outage == "ended" else own_server.signal(signal.SIGSTOP)

    worker = LineWorker(tmp_path, "first", at_step=at_step)
    with pytest.raises(ObjectStorageError, match="no answer from the object storage"):
        worker.run()
    with pytest.raises(ObjectStorageError):
        worker.run()
    own_server.start() if outage == "ended" else own_server.signal(signal.SIGCONT)
    worker.run()
    assert delivered(tmp_path) == everything()


# What is left over


def test_files_and_trials_of_a_killed_worker_are_removed_at_its_next_start(
    tmp_path: Path, described: BucketOfATest
) -> None:
    bucket = described.open()
    records = "_loghub/p/l/g"
    for batch in ("w-1-aa", "w-10-bb"):
        assert bucket.create(f"{records}/stage/{batch}/part-0.parquet", b"rows")
    assert bucket.create(f"{records}/trials/t/0", b"0")
    commit_log = CommitLog(storage(tmp_path))
    commit_log.prune(owner="w-1")
    stage = tmp_path / HOME / "stage"
    assert [path.name for path in stage.iterdir()] == ["w-10-bb"]
    with pytest.raises(RangeTakenError):
        LineWorker(tmp_path, "w").commit_log.publish("w-1-aa", [], may_commit=lambda: True)
    for path in (tmp_path / HOME).rglob("*"):
        date_back(path, TOMBSTONE_S + 10)
    commit_log.prune(owner="w-1")
    assert not stage.exists()
    assert not (tmp_path / HOME / "trials").exists()


def test_a_reader_of_the_prefix_sees_a_batch_whole_once_it_is_committed(
    tmp_path: Path, described: BucketOfATest
) -> None:
    """At no step is there a part of a file, or a file of a batch that may still be aborted."""
    seen: list[tuple[str, int]] = []
    worker = LineWorker(tmp_path, "w", at_step=lambda step: seen.append((step, len(delivered(tmp_path)))))
    worker.assign((0,))
    worker.deliver()
    decided = [step for step, _ in seen].index("decided")
    assert {lines for _, lines in seen[: decided + 1]} == {0}
    moved = [lines for step, lines in seen if step == "file moved"]
    assert moved in ([5, 10], [10, 10])  # two files, which are placed at the same time


def test_the_last_opener_wins_among_many(tmp_path: Path, described: BucketOfATest) -> None:
    openers = [storage(tmp_path) for _ in range(6)]
    tokens: dict[int, str] = {}

    def open_often(number: int) -> None:
        for _ in range(5):
            tokens[number] = openers[number].open("0-1")

    with ThreadPoolExecutor(len(openers)) as pool:
        list(pool.map(open_often, range(len(openers))))
    last = openers[0].last_openings(["0-1", "1-1"])
    assert list(last) == ["0-1"]
    assert len(set(tokens.values())) == len(tokens), "each token is one opening's"
    assert last["0-1"] == str(max(map(int, tokens.values())))


def test_an_opening_that_arrives_late_undoes_no_later_one(
    tmp_path: Path, described: BucketOfATest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request of an opening was repeated, and its first copy is carried out when others have opened the
    shard and have removed the opening."""
    first = LineWorker(tmp_path, "first")
    sent: list[tuple[Bucket, str, bytes]] = []

    def create(bucket: Bucket, key: str, content: bytes) -> bool:
        sent.append((bucket, key, content))
        return REAL_CREATE(bucket, key, content)

    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "create", create)
        first.assign((0,))
    second = LineWorker(tmp_path, "second")
    second.assign((0,))
    second.deliver()
    for late in sent:
        REAL_CREATE(*late)
    with pytest.raises(RangeTakenError):
        first.deliver()
    while second.deliver():
        pass
    assert second.positions == {0: END}
    assert delivered(tmp_path).total() == END - BEGIN
