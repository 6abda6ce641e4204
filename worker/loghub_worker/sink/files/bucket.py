"""The storage of a commit log under a prefix of an S3 bucket, by obstore: the only module that knows obstore
and the storage's errors.

Spark writes a batch into a local folder, and its files are uploaded below ``_loghub/``, where readers do not
look; or executors write them there (`loghub_worker.sink.files.executor_files`). `place` copies each file to
its name within the storage, so that a reader finds a whole file or none.

A record is created by a PUT that succeeds only if the key does not exist (If-None-Match), and then read,
because a PUT that was repeated after a lost answer reports its own object as existing. No object is ever
overwritten with other content: a request that was given up may still arrive, and would undo a later write. So
an opening is not one object as on a disk, but the highest number below ``openings/<name>/``.

A request is repeated a few times after 5xx answers and broken connections, and then fails with an `OSError`
in plain words, which leave out what the storage says about keys and signatures. The access key is read before
each request, so that a rotated key takes effect at once.
"""

import contextlib
import ipaddress
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

import obstore
import structlog
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from loghub.contract.sinks import S3Settings
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.files.storage import FOLDER, CreateRecords, data_files
from loghub_worker.sink.sink_start import CredentialFiles

log = structlog.get_logger()


T = TypeVar("T")
SCHEME = "s3://"
ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN = "accessKeyId", "secretAccessKey", "sessionToken"
# An upload holds this much in memory: PART_BYTES for each of PARALLEL_PARTS.
PART_BYTES, PARALLEL_PARTS = 8 << 20, 4
MAX_RETRIES, RETRY_TIMEOUT_S, REQUEST_TIMEOUT_S = 4, 30, 30
MAX_KEY_BYTES = 1024  # the limit of S3
_STATUS = re.compile(r"status code: (\d{3})")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
_CODE, _MESSAGE = re.compile(r"<Code>(\w+)</Code>"), re.compile(r"<Message>([^<]{1,300})</Message>")
_ADVICE = {
    "NoSuchBucket": "create the bucket, or correct spec.pipeline.sink",
    "AccessDenied": "the access key needs s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject",
    "SignatureDoesNotMatch": "secretAccessKey does not belong to accessKeyId",
    "InvalidAccessKeyId": "the storage does not know accessKeyId",
    "ExpiredToken": "renew accessKeyId, secretAccessKey and sessionToken",
    "PermanentRedirect": "set s3.region to the region of the bucket",
    "AuthorizationHeaderMalformed": "set s3.region to the region of the bucket",
    "SlowDown": "the storage limits the rate of requests; the worker tries again",
}


class ObjectStorageError(OSError):
    """The storage refused a request, or did not answer; it may have carried it out."""


class Bucket:
    """The objects below one prefix; their keys are relative to it. All methods raise `OSError`. What one
    client has done is found by all at once, as Amazon S3 promises."""

    def __init__(self, url: str, settings: S3Settings, credentials: CredentialFiles) -> None:
        """Raises `InvalidSinkError`."""
        name, _, prefix = url.removeprefix(SCHEME).partition("/")
        if not url.startswith(SCHEME) or not name:
            raise InvalidSinkError(f"the object storage of a sink is s3://bucket/prefix, not {url!r}")
        self.url = url.rstrip("/")
        self._name, self._prefix = name, prefix.strip("/")
        self._endpoint = _endpoint(name, settings)
        self._settings = settings
        self._credentials = credentials
        self._keys: Mapping[str, str] | None = None
        self._store: S3Store | None = None
        if credentials.given:
            credentials.require(ACCESS_KEY_ID)
            credentials.require(SECRET_ACCESS_KEY)

    def key(self, key: str) -> str:
        """The key in the bucket."""
        return "/".join(filter(None, (self._prefix, key)))

    def obstacle(self, key: str) -> str | None:
        """Why no object can have this key, which has values of partitions; None if one can."""
        whole = self.key(key)
        if "\0" in whole:
            return (
                f"a key with the character U+0000, {whole[:200]!r}: replace it in the columns of partitionBy"
            )
        if len(whole.encode()) > MAX_KEY_BYTES:
            return (
                f"a key of more than {MAX_KEY_BYTES} bytes, {whole[:200]}..: the values of the columns in"
                " partitionBy are too long"
            )
        return None

    def create(self, key: str, content: bytes) -> bool:
        """Create an object unless it exists; returns whether the storage says that this call did."""

        def put(store: S3Store) -> bool:
            try:
                obstore.put(store, key, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        return self._ask(put, key)

    def read(self, key: str) -> bytes | None:
        """The content of an object; None if the storage says that the key does not exist."""
        try:
            return self._ask(lambda store: bytes(obstore.get(store, key).bytes()), key)
        except FileNotFoundError:
            return None

    def upload(self, key: str, file: Path) -> None:
        """Write a file as an object, in parts if it is large."""
        self._ask(
            lambda store: obstore.put(
                store, key, file, chunk_size=PART_BYTES, max_concurrency=PARALLEL_PARTS
            ),
            key,
        )

    def copy(self, source: str, target: str) -> bool:
        """Copy an object within the storage, in one step. Returns False if the source does not exist."""
        try:
            self._ask(lambda store: obstore.copy(store, source, target), source)
        except FileNotFoundError:
            return False
        return True

    def remove(self, keys: Iterable[str]) -> None:
        """Remove the objects among these that exist."""
        for key in keys:
            self._remove(key)

    def _remove(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._ask(lambda store: obstore.delete(store, key), key)

    def exists(self, key: str) -> bool:
        """Whether there is an object of this key. Its content is requested, though not read: the answer to a
        HEAD does not say whether the key is absent or the bucket."""
        try:
            self._ask(lambda store: obstore.get(store, key), key)
        except FileNotFoundError:
            return False
        return True

    def times(self, folder: str) -> Mapping[str, float]:
        """The keys below a folder, at any depth and without the folder, and when each object was written
        (unix seconds, of the storage's clock)."""

        def ask(store: S3Store) -> dict[str, float]:
            times: dict[str, float] = {}
            for page in obstore.list(store, folder):
                for item in page:
                    times[item["path"].removeprefix(f"{folder}/")] = item["last_modified"].timestamp()
            return times

        return self._ask(ask, folder)

    def any_key(self, wanted: Callable[[str], bool], *, folder: str | None = None) -> str | None:
        """A key that is `wanted` below a folder or the prefix; None if there is none."""

        def ask(store: S3Store) -> str | None:
            keys = (one["path"] for page in obstore.list(store, folder) for one in page)
            return next((key for key in keys if wanted(key)), None)

        return self._ask(ask, folder or "")

    def _ask(self, request: Callable[[S3Store], T], key: str) -> T:
        try:
            return request(self._connect())
        except (BaseError, FileNotFoundError) as error:
            text = str(error)
            code = _CODE.search(text)
            # Only the storage itself answers this. A proxy before it may answer 404 while the storage is
            # unavailable.
            if isinstance(error, FileNotFoundError) and code is not None and code[1] == "NoSuchKey":
                raise
            raise ObjectStorageError(f"{self.url}/{key}: {plainly(text)}") from None

    def _connect(self) -> S3Store:
        keys = read_keys(self._credentials)
        if self._store is None or keys != self._keys:
            self._store, self._keys = self._make_store(keys), keys
        return self._store

    def _make_store(self, keys: Mapping[str, str]) -> S3Store:
        options: dict[str, Any] = {
            "endpoint": self._endpoint,
            "region": self._settings.region,
            "access_key_id": keys.get(ACCESS_KEY_ID),
            "secret_access_key": keys.get(SECRET_ACCESS_KEY),
            "session_token": keys.get(SESSION_TOKEN),
        }
        return S3Store(
            self._name,
            prefix=self._prefix or None,
            virtual_hosted_style_request=self._settings.virtual_hosted,
            disable_bulk_delete=True,  # OSS has another call
            client_options={
                "allow_http": self._settings.allow_http,
                "timeout": timedelta(seconds=REQUEST_TIMEOUT_S),
            },
            retry_config={
                "max_retries": MAX_RETRIES,
                "retry_timeout": timedelta(seconds=RETRY_TIMEOUT_S),
            },
            **{name: value for name, value in options.items() if value},
        )


def read_keys(credentials: CredentialFiles) -> Mapping[str, str]:
    """The current access key, by the names of its values; empty without a Secret: the identity of the
    environment or the machine is then used. Raises `OSError`."""
    if not credentials.given:
        return {}
    values = {name: credentials.get(name) for name in (ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN)}
    keys = {name: value for name, value in values.items() if value}
    for name in (ACCESS_KEY_ID, SECRET_ACCESS_KEY):
        if name not in keys:
            raise ObjectStorageError(f"the Secret of the sink lacks {name}")
    for name, value in keys.items():
        # If a header cannot have the value, both libraries raise an error that is no `Exception`.
        if not (value.isascii() and value.isprintable()):
            raise ObjectStorageError(f"{name} in the Secret of the sink has characters that no key has")
    return keys


def _endpoint(bucket: str, settings: S3Settings) -> str | None:
    if settings.endpoint is None:
        return None
    parts = _parts(settings.endpoint)
    if parts.scheme == "http" and not settings.allow_http:
        raise InvalidSinkError(f"{settings.endpoint} is used only with s3.allowHttp: true")
    if settings.virtual_hosted and _is_address(parts.hostname or ""):
        raise InvalidSinkError(
            "s3.virtualHosted puts the bucket into the host name, and the host of"
            f" {settings.endpoint} is an address: leave it out, or give a name"
        )
    host = f"{bucket}.{parts.netloc}" if settings.virtual_hosted else parts.netloc
    return urlunsplit((parts.scheme, host, "", "", ""))


def _parts(endpoint: str) -> SplitResult:
    """The parts of an endpoint. Raises `InvalidSinkError` where the library would end the process."""
    try:
        parts = urlsplit(endpoint.rstrip("/"))
        host, _ = parts.hostname or "", parts.port
        if _is_address(host):
            ipaddress.ip_address(host)
    except ValueError as error:
        raise InvalidSinkError(f"s3.endpoint {endpoint} has no valid host and port: {error}") from error
    return parts


def _is_address(host: str) -> bool:
    """Whether clients of HTTP take the host for an address: one that ends in a number is IPv4, or invalid."""
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def plainly(text: str) -> str:
    """What happened and what to do, from a message that may quote the whole request and answer."""
    status, code, message = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        said = f"{code[1]}: {message[1]}" if message else code[1]
    elif status is not None:
        said = f"the storage answered {status[1]}"
        return f"{said} ({_ADVICE['AccessDenied']})" if status[1] == "403" else said
    else:
        said = "no answer from the object storage: " + text.splitlines()[0].rpartition(" - ")[2][:200]
    return f"{said} ({_ADVICE[code[1]]})" if code and code[1] in _ADVICE else said


PARALLEL = 32  # requests that are sent at the same time, for records and small files
SMALL_BYTES = 1 << 20  # PARALLEL files of this size are in memory at the same time
MAX_COPY_BYTES = 5 * 10**9  # the limit of S3 for one copy

RACES, RACERS = 5, 8  # how often `try_out` lets this many writers create one key
MAX_OPENINGS = 100  # of other workers, which may come first before an opening fails


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
        condition of a PUT, and others check it first and write later, so that several of many writers win."""
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
        """Whether at most one of several writers creates a key, and its content stays. If an answer was lost,
        it may be that no writer knows that it won."""
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
        pairs = zip(names, contents, strict=True)
        return {name: content for name, content in pairs if content is not None}

    @contextmanager
    def creating(
        self,
        content: bytes,
        *,
        files_of: str | None = None,
        names_in: str | None = None,  # noqa: ARG002 - an object is durable once its PUT is answered
    ) -> Iterator[CreateRecords]:
        """Send the requests for all records at the same time, so that many shards take as long as one."""
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
            for future in requests:
                yield future.result()
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
        answers = self._all(lambda name: self._bucket.exists(self._key(name)), names)
        return frozenset(name for name, exists in zip(names, answers, strict=True) if exists)

    def names(self, folder: str) -> list[str]:
        return list(self._bucket.times(self._key(folder)))

    def ages_s(self, folder: str, now_unix_s: float) -> Mapping[str, float]:
        return {name: now_unix_s - at for name, at in self._bucket.times(self._key(folder)).items()}

    def remove(self, names: Collection[str]) -> None:
        self._remove_keys(map(self._key, names))

    def _remove_keys(self, keys: Iterable[str]) -> None:
        self._all(lambda key: self._bucket.remove([key]), keys)

    def open(self, name: str) -> str:
        """Create the next number, which must be the highest one afterwards: since the numbers were listed,
        another opener may have created more numbers and removed this one."""
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
        """The key prefix of a batch's files that are staged in the bucket."""
        return self._key(f"stage/{batch}")

    def uploaded(self, batch: str, sizes: Mapping[str, int]) -> None:
        """Executors have staged these files of a batch in the bucket: their names, and their bytes. Other
        files of the batch that are there do not count."""
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
        if size > MAX_COPY_BYTES:
            return (
                f"a file of {size} bytes, of which an object storage copies at most {MAX_COPY_BYTES} in"
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
