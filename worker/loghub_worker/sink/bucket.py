"""A prefix of an S3 bucket, by obstore: the only place that knows of its library and of the storage's errors.

A request is repeated a few times after 5xx answers and broken connections, and then fails with an `OSError`
in plain words, which leave out what the storage says about keys and signatures. The access key is read before
each request, so that a rotated one takes effect at once.
"""

import contextlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from loghub.sink_settings import S3Settings
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.sink_credentials import SinkCredentials

T = TypeVar("T")
SCHEME = "s3://"
ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN = "accessKeyId", "secretAccessKey", "sessionToken"
# An upload holds so much in memory: PART_BYTES for each of PARALLEL_PARTS.
PART_BYTES, PARALLEL_PARTS = 8 << 20, 4
MAX_RETRIES, RETRY_TIMEOUT_S, REQUEST_TIMEOUT_S = 4, 30, 30
LONGEST_KEY_BYTES = 1024  # of S3
_STATUS = re.compile(r"status code: (\d{3})")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
_CODE, _MESSAGE = re.compile(r"<Code>(\w+)</Code>"), re.compile(r"<Message>([^<]{1,300})</Message>")
_ADVICE = {
    "NoSuchBucket": "create the bucket, or correct spec.pipeline.sink",
    "AccessDenied": "the access key needs s3:ListBucket, s3:GetObject, s3:PutObject and s3:DeleteObject",
    "SignatureDoesNotMatch": "secretAccessKey is not that of accessKeyId",
    "InvalidAccessKeyId": "the storage does not know accessKeyId",
    "ExpiredToken": "renew accessKeyId, secretAccessKey and sessionToken",
    "PermanentRedirect": "set s3.region to that of the bucket",
    "AuthorizationHeaderMalformed": "set s3.region to that of the bucket",
    "SlowDown": "the storage limits the rate of requests; the worker tries again",
}


class ObjectStorageError(OSError):
    """The storage refused a request, or did not answer; it may have carried it out."""


class Bucket:
    """The objects below one prefix; their keys are relative to it. All methods raise `OSError`. What one
    client has done is found by all at once, as Amazon S3 promises."""

    def __init__(self, url: str, settings: S3Settings, credentials: SinkCredentials) -> None:
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
        if len(whole.encode()) > LONGEST_KEY_BYTES:
            return (
                f"a key of more than {LONGEST_KEY_BYTES} bytes, {whole[:200]}..: the values of the columns in"
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
        """Remove those of the objects that exist."""
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
        """The keys below a folder, at any depth and without it, and when each object was written (unix
        seconds, of the storage's clock)."""

        def ask(store: S3Store) -> dict[str, float]:
            found: dict[str, float] = {}
            for page in obstore.list(store, folder):
                for one in page:
                    found[one["path"].removeprefix(f"{folder}/")] = one["last_modified"].timestamp()
            return found

        return self._ask(ask, folder)

    def any_key(self, wanted: Callable[[str], bool], *, folder: str | None = None) -> str | None:
        """One key that is wanted, of those below a folder or the prefix; None if there is none."""

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
            # Only the storage itself says so. What stands before it may answer 404 while that is away.
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


def read_keys(credentials: SinkCredentials) -> Mapping[str, str]:
    """The access key as it is now, by the names of its values; empty without a Secret: the environment's or
    the machine's identity is then used. Raises `OSError`."""
    if not credentials.given:
        return {}
    found = {name: credentials.get(name) for name in (ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN)}
    keys = {name: value for name, value in found.items() if value}
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
    """As for any client of HTTP: a host that ends in a number is an IPv4 address, or invalid."""
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def plainly(text: str) -> str:
    """What happened and what to do, of a message that may quote the whole request and answer."""
    status, code, message = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
    if code is not None:
        said = f"{code[1]}: {message[1]}" if message else code[1]
    elif status is not None:
        said = f"the storage answered {status[1]}"
        return f"{said} ({_ADVICE['AccessDenied']})" if status[1] == "403" else said
    else:
        said = "no answer from the object storage: " + text.splitlines()[0].rpartition(" - ")[2][:200]
    return f"{said} ({_ADVICE[code[1]]})" if code and code[1] in _ADVICE else said
