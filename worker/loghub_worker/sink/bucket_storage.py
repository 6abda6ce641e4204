"""The storage of a commit log under a prefix of a bucket.

Spark writes a batch into a local folder, and its files are uploaded below ``_loghub/``, where readers do not
look; or executors write them there (`loghub_worker.sink.executor_files`). `place` copies each to its name
within the storage, so that a reader finds a file whole or not at all.

A record is created by a PUT that succeeds only if the key does not exist (If-None-Match), and then read,
since a PUT that was repeated after a lost answer reports its own object as existing. Nothing is ever
overwritten with other content: a request that was given up may still arrive, and would undo what came after
it. So an opening is not one object as on a disk, but the highest number below ``openings/<name>/``.
"""

import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import structlog

from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.bucket import Bucket, ObjectStorageError
from loghub_worker.sink.log_storage import FOLDER, CreateRecords, data_files

log = structlog.get_logger()

T = TypeVar("T")
PARALLEL = 32  # requests that are sent at the same time, for records and small files
SMALL_BYTES = 1 << 20
LARGEST_COPY_BYTES = 5 * 10**9  # of S3

RACES, RACERS = 5, 8  # how often `try_out` lets so many writers create one key
MAX_OPENINGS = 100  # of others that may come first before an opening fails


class BucketStorage:
    """`LogStorage` in a bucket that honours create-only writes. Files are staged in the local folder `local`,
    which is this process's own and is emptied first."""

    def __init__(self, bucket: Bucket, local: Path, *, group_path: tuple[str, ...]) -> None:
        """`group_path` is project, logstore, group."""
        self._bucket = bucket
        self._home = "/".join((FOLDER, *group_path))
        self._local = local
        self._uploaded: dict[str, Mapping[str, int]] = {}  # by executors, of batches not yet discarded
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="bucket")  # starts threads when needed
        shutil.rmtree(local, ignore_errors=True)
        local.mkdir(parents=True)

    def try_out(self) -> None:
        """Raises `InvalidSinkError` if the storage lets two writers create one key. Some storages ignore the
        condition of a PUT, and some check it first and write later, so that of many writers several win."""
        trial = f"trials/{secrets.token_hex(8)}"
        keys = [self._key(f"{trial}/{number}") for number in range(RACES)]
        with ThreadPoolExecutor(RACERS) as pool:
            winners = [self._has_one_winner(pool, key) for key in keys]
        listed = len(self.names(trial))
        self._remove_keys(keys)
        if not all(winners):
            raise InvalidSinkError(
                f"{self._bucket.url}: the object storage lets several writers create one object (it ignores"
                " If-None-Match, or does not check it in one step), so exactly-once delivery is not possible"
                " there; use another storage or a volume"
            )
        if listed != len(keys):
            raise InvalidSinkError(
                f"{self._bucket.url}: the object storage does not list what was just written, so exactly-once"
                " delivery is not possible there; use another storage or a volume"
            )

    def now_unix_s(self) -> float:
        trial = f"trials/{secrets.token_hex(8)}"
        self._bucket.create(self._key(trial), b"now")
        times = self._bucket.times(self._key("trials"))
        self._bucket.remove([self._key(trial)])
        return times[trial.partition("/")[2]]

    def _has_one_winner(self, pool: ThreadPoolExecutor, key: str) -> bool:
        """Whether of several writers at most one creates a key, and what it wrote stays. If an answer was
        lost, it may be that none of them knows that it won."""
        ready = Barrier(RACERS)

        def write(content: bytes) -> bool:
            ready.wait()
            return self._bucket.create(key, content)

        contents = [str(number).encode() for number in range(RACERS)]
        created = list(pool.map(write, contents))
        won = [content for content, was_first in zip(contents, created, strict=True) if was_first]
        if len(won) > 1 or self._bucket.create(key, b"later"):
            return False
        return self._bucket.read(key) in (won or contents)

    def describe(self, name: str) -> str:
        return f"{self._bucket.url}/{self._key(name)}"

    def _key(self, name: str) -> str:
        return f"{self._home}/{name}"

    def read(self, names: Collection[str]) -> Mapping[str, bytes]:
        contents = self._all(lambda name: self._bucket.read(self._key(name)), names)
        found = zip(names, contents, strict=True)
        return {name: content for name, content in found if content is not None}

    @contextmanager
    def creating(
        self,
        content: bytes,
        *,
        files_of: str | None = None,
        names_in: str | None = None,  # noqa: ARG002 - an object is durable once its PUT is answered
    ) -> Iterator[CreateRecords]:
        """The requests for all records are sent at the same time, so that many shards take as long as one."""
        if files_of is not None:
            self._upload_all(files_of)
        yield lambda names: self._each(partial(self._create_one, content=content), names)

    def _create_one(self, name: str, *, content: bytes) -> bytes:
        there = self._create(name, content)
        if there is None:
            raise ObjectStorageError(f"{self.describe(name)} was written but is not there any more")
        return there

    def _each(self, request: Callable[[str], T], names: Iterable[str]) -> Iterator[T]:
        """Send a request for each name, and yield the answers in this order. At the end, also after an error,
        each request is answered."""
        requests = [self._pool.submit(request, name) for name in names]
        try:
            for one in requests:
                yield one.result()
        finally:
            wait(requests)

    def _all(self, request: Callable[[str], T], names: Iterable[str]) -> list[T]:
        return list(self._each(request, names))

    def _create(self, name: str, content: bytes) -> bytes | None:
        """The content that is there afterwards; None if it was removed since."""
        failure: OSError | None = None
        try:
            self._bucket.create(self._key(name), content)
        except ObjectStorageError as error:
            failure = error
        there = self._bucket.read(self._key(name))
        if there is None and failure is not None:
            raise failure
        return there

    def flush(self, folder: str) -> None:
        """An object is durable once its PUT is answered."""

    def existing(self, names: Collection[str]) -> frozenset[str]:
        found = self._all(lambda name: self._bucket.exists(self._key(name)), names)
        return frozenset(name for name, exists in zip(names, found, strict=True) if exists)

    def names(self, folder: str) -> list[str]:
        return list(self._bucket.times(self._key(folder)))

    def ages_s(self, folder: str, now_unix_s: float) -> Mapping[str, float]:
        return {name: now_unix_s - at for name, at in self._bucket.times(self._key(folder)).items()}

    def remove(self, names: Collection[str]) -> None:
        self._remove_keys(map(self._key, names))

    def _remove_keys(self, keys: Iterable[str]) -> None:
        self._all(lambda key: self._bucket.remove([key]), keys)

    def open(self, name: str) -> str:
        """Create the next number, which must be the highest one afterwards: another opener may have made more
        of them, and have removed this one, since the numbers were listed."""
        token = secrets.token_hex(16).encode()
        for _ in range(MAX_OPENINGS):
            # The first number is any: if the records are deleted, none that a worker has comes again.
            number = max(self._openings(name), default=secrets.randbits(48)) + 1
            if self._create(f"openings/{name}/{number}", token) != token:
                continue
            numbers = self._openings(name)
            if max(numbers, default=-1) == number:
                earlier = [f"openings/{name}/{one}" for one in numbers if one < number]
                self.remove(earlier)
                return str(number)
        raise ObjectStorageError(f"{self.describe('openings')}/{name}: others open it all the time")

    def _openings(self, name: str) -> list[int]:
        return [int(one) for one in self.names(f"openings/{name}") if one.isdecimal()]

    def last_openings(self, names: Iterable[str]) -> Mapping[str, str]:
        """One listing for all of them."""
        wanted = set(names)
        last: dict[str, int] = {}
        for path in self.names("openings"):
            name, _, number = path.partition("/")
            if name in wanted and number.isdecimal():
                last[name] = max(int(number), last.get(name, -1))
        return {name: str(number) for name, number in last.items()}

    def stage(self, batch: str) -> Path:
        return self._local / batch

    def stage_key(self, batch: str) -> str:
        """Of what is staged of a batch in the bucket, the part of the keys before the names."""
        return self._key(f"stage/{batch}")

    def uploaded(self, batch: str, sizes: Mapping[str, int]) -> None:
        """Executors have staged these files of a batch in the bucket: their names, and their bytes. Whatever
        else is there of the batch does not count."""
        self._uploaded[batch] = sizes

    def staged_files(self, batch: str) -> list[str]:
        stage = self.stage(batch)
        here = [str(path.relative_to(stage)) for path in data_files(stage)]
        return sorted([*here, *self._uploaded.get(batch, ())])

    def _upload_all(self, batch: str) -> None:
        """Large files one after another: an upload has parts of its file in memory."""
        stage = self.stage(batch)
        sizes = {str(path.relative_to(stage)): path.stat().st_size for path in data_files(stage)}
        self._all(partial(self._upload, batch), [name for name in sizes if sizes[name] <= SMALL_BYTES])
        for name in sizes:
            if sizes[name] > SMALL_BYTES:
                self._upload(batch, name)

    def _upload(self, batch: str, name: str) -> None:
        file = self.stage(batch) / name
        self._bucket.upload(self._staged(batch, name), file)
        file.unlink()

    def _staged(self, batch: str, name: str) -> str:
        return f"{self.stage_key(batch)}/{name}"

    def obstacle(self, batch: str, name: str, target: str) -> str | None:
        sizes = self._uploaded.get(batch, {})
        size = sizes[name] if name in sizes else (self.stage(batch) / name).stat().st_size
        if size > LARGEST_COPY_BYTES:
            return (
                f"a file of {size} bytes, of which an object storage copies at most {LARGEST_COPY_BYTES} in"
                " one step: set roll.targetBytes of the sink, or lower fetch.maxBytes or fetch.maxLogs"
            )
        return self._bucket.obstacle(target) or self._bucket.obstacle(self._staged(batch, name))

    def staged(self) -> frozenset[str]:
        local = [path.name for path in self._local.iterdir()]
        return frozenset([*local, *(name.partition("/")[0] for name in self.names("stage"))])

    def place(self, batch: str, targets: Mapping[str, str]) -> Iterable[bool]:
        return self._each(lambda name: self._place(self._staged(batch, name), targets[name]), targets)

    def _place(self, staged: str, target: str) -> bool:
        if not self._bucket.copy(staged, target):
            return self._bucket.exists(target)
        self._bucket.remove([staged])
        return True

    def flush_files(self, folders: Collection[str]) -> None:
        """A copy is durable once it is answered."""

    def discard(self, batch: str) -> None:
        self._uploaded.pop(batch, None)
        shutil.rmtree(self.stage(batch), ignore_errors=True)
        try:
            self._remove_keys(self._staged(batch, name) for name in self.names(f"stage/{batch}"))
        except OSError as error:
            log.warning("staged files are left over for now", batch=batch, message=str(error))

    def staged_ages_s(self, now_unix_s: float) -> Mapping[str, float]:
        ages: dict[str, float] = {}
        for path, age_s in self.ages_s("stage", now_unix_s).items():
            batch = path.partition("/")[0]
            ages[batch] = min(age_s, ages.get(batch, age_s))
        return ages

    def remove_parts(self, *, older_than_s: float, now_unix_s: float) -> None:
        """Trials that were not ended. Only the storage itself can find uploads that were not completed."""
        old = [name for name, age_s in self.ages_s("trials", now_unix_s).items() if age_s > older_than_s]
        self._remove_keys(self._key(f"trials/{name}") for name in old)
