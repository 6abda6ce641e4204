"""The options of the data source, as values, and its errors: each says what to do, and contains no key.

Options that Spark's Kafka source has, too, mean the same here. Spark passes all options as texts, and their
names in lower case. docs/data-source.md describes each one.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, TypeVar

from loghub.client.port import Credentials
from loghub.client.target import BadEndpoint, split_endpoint
from loghub.near_names import did_you_mean
from loghub.wire import names
from loghub.wire import names as hosts
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import MalformedInput, MalformedName
from loghub.wire.names import NameRule


class OptionError(ValueError):
    """An option, or the declared schema, cannot be used."""


class LogstoreError(Exception):
    """The logstore cannot be read or written as the options say."""


class DataLossError(LogstoreError):
    """Log groups that should be read no longer exist."""


T = TypeVar("T")

ENV_KEY_ID = "ALIBABA_CLOUD_ACCESS_KEY_ID"
ENV_KEY_SECRET = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"  # noqa: S105 - a name
ENV_TOKEN = "ALIBABA_CLOUD_SECURITY_TOKEN"  # noqa: S105 - a name

CONNECTION = (
    "endpoint", "project", "logstore", "accessKeyId", "accessKeySecret", "securityToken", "credentialsDir",
    "allowHttp",
)  # fmt: skip
READ = (
    *CONNECTION, "startingOffsets", "startingTimestamp", "shards", "inOrder", "minPartitions",
    "failOnDataLoss", "mode",
)  # fmt: skip
BATCH = (*READ, "endingOffsets", "endingTimestamp")
STREAM = (*READ, "maxOffsetsPerTrigger", "maxLogsPerTrigger", "maxBytesPerTrigger", "fetchIntervalSeconds")
EVERY = tuple(dict.fromkeys((*BATCH, *STREAM)))
# Spark passes these on to a sink, and they are its own.
SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
EARLIEST, LATEST = -2, -1  # as in the JSON of Spark's Kafka source
MAX_SHARD = 1 << 31


class Use(Enum):
    """The uses of the options, with the names that each use accepts."""

    BATCH_READ = "a batch read"
    STREAM_READ = "a stream"
    WRITE = "a write"

    @property
    def names(self) -> tuple[str, ...]:
        return {Use.BATCH_READ: BATCH, Use.STREAM_READ: STREAM, Use.WRITE: CONNECTION}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreConnection:
    """A logstore, and the place of the access key: in the options, in the folder, or in the environment. Its
    ``repr`` shows no part of the key."""

    endpoint: str
    project: str
    logstore: str
    credentials_dir: str = ""
    key: Credentials | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"{self.project}/{self.logstore}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A place in each shard: its first log group (`EARLIEST`), its end (`LATEST`), a time of receipt in unix
    seconds, or a cursor or one of the two constants by shard."""

    everywhere: int | None = None
    unix_s: int | None = None
    by_shard: Mapping[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchLimits:
    """The most that a micro-batch reads; None: no limit."""

    log_groups: int | None = None
    logs: int | None = None
    bytes: int | None = None

    @property
    def needs_sizes(self) -> bool:
        return self.logs is not None or self.bytes is not None

    def __bool__(self) -> bool:
        return self.needs_sizes or self.log_groups is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """All options of a reader. `shards` is None for all shards, including shards of later splits and
    merges."""

    connection: LogstoreConnection
    start: Bound
    end: Bound
    shards: frozenset[int] | None
    in_order: bool
    min_partitions: int | None
    fail_on_data_loss: bool
    fail_fast: bool
    limits: MicroBatchLimits
    fetch_interval_s: float


def check_names(options: Mapping[str, str]) -> None:
    """Raise `OptionError` for an option that no use of the data source has."""
    names = {name.lower() for name in EVERY} | SPARKS_OWN
    for name in options:
        if name.lower() == "path":
            raise OptionError("load() and save() take no path here: name the option logstore")
        if name.lower() not in names:
            hint = did_you_mean(name, EVERY) or f". It knows {', '.join(EVERY)}"
            raise OptionError(f"the data source has no option {name!r}{hint}")


def read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """The options of a reader. Raises `OptionError`."""
    values = _Given(options, use)
    stream = use is Use.STREAM_READ
    return ReadOptions(
        connection=connection(options, use),
        start=values.bound("starting", LATEST if stream else EARLIEST),
        end=values.bound("ending", LATEST),
        shards=values.value("shards", _shards, None),
        in_order=values.value("inOrder", _boolean, False),
        min_partitions=values.value("minPartitions", _positive, None),
        fail_on_data_loss=values.value("failOnDataLoss", _boolean, True),
        fail_fast=values.value("mode", _mode, False),
        limits=MicroBatchLimits(
            log_groups=values.value("maxOffsetsPerTrigger", _positive, None),
            logs=values.value("maxLogsPerTrigger", _positive, None),
            bytes=values.value("maxBytesPerTrigger", _positive, None),
        ),
        fetch_interval_s=values.value("fetchIntervalSeconds", _seconds, 1.0),
    )


def connection(
    options: Mapping[str, str], use: Use, environment: Mapping[str, str] = os.environ
) -> LogstoreConnection:
    """The logstore and its key. Raises `OptionError`, also if no key is found in any of the ways."""
    values = _Given(options, use)
    endpoint = values.required("endpoint")
    project, logstore = values.name("project", names.PROJECT), values.name("logstore", names.LOGSTORE)
    try:
        split_endpoint(endpoint)
    except BadEndpoint as error:
        raise OptionError(f"option endpoint: {error}") from None
    if hosts.is_exposed(endpoint, values.text("allowHttp").replace(",", " ").split()):
        raise OptionError(
            f"option endpoint: {endpoint} is http on the public internet, where everyone could read the logs;"
            " use https, or name the host in the option allowHttp"
        )
    key_id, secret, token = (
        values.text(name) for name in ("accessKeyId", "accessKeySecret", "securityToken")
    )
    folder = values.text("credentialsDir")
    if folder and (key_id or secret or token):
        raise OptionError("give either credentialsDir or accessKeyId and accessKeySecret, not both")
    if bool(key_id) != bool(secret) or (token and not key_id):
        raise OptionError("accessKeyId and accessKeySecret belong together; one of them is missing")
    if not folder and not key_id and not (environment.get(ENV_KEY_ID) and environment.get(ENV_KEY_SECRET)):
        raise OptionError(
            "there is no access key: set the option credentialsDir (a folder with the files accessKeyId and"
            " accessKeySecret, on every machine of this Spark), or accessKeyId and accessKeySecret, or the"
            f" environment variables {ENV_KEY_ID} and {ENV_KEY_SECRET} for Spark's processes"
        )
    key = Credentials(access_key_id=key_id, access_key_secret=secret, security_token=token)
    return LogstoreConnection(
        endpoint=endpoint,
        project=project,
        logstore=logstore,
        credentials_dir=folder,
        key=key if key_id else None,
    )


class _Given:
    """The options as given, by name in any case."""

    def __init__(self, options: Mapping[str, str], use: Use) -> None:
        check_names(options)
        self._options = {name.lower(): value.strip() for name, value in options.items()}
        allowed = {name.lower() for name in use.names} | SPARKS_OWN
        for name in self._options:
            if name not in allowed:
                raise OptionError(f"the option {_spelled(name)} is not for {use.value}")

    def text(self, name: str) -> str:
        return self._options.get(name.lower(), "")

    def required(self, name: str) -> str:
        if not self.text(name):
            raise OptionError(f"the option {name} is missing")
        return self.text(name)

    def name(self, name: str, rule: NameRule) -> str:
        try:
            return rule.check(self.required(name))
        except MalformedName as error:
            raise OptionError(f"option {name}: {error}") from None

    def value(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """The value of an option. Raises `OptionError` with the name and the value that cannot be parsed."""
        if name.lower() not in self._options:
            return default
        text = self.text(name)
        try:
            return parse(text)
        except ValueError as error:
            raise OptionError(f"option {name}: {error}, not {text[:100]!r}") from None

    def bound(self, prefix: str, default: int) -> Bound:
        offsets, timestamp = f"{prefix}Offsets", f"{prefix}Timestamp"
        if self.text(offsets) and self.text(timestamp):
            raise OptionError(f"give either {offsets} or {timestamp}, not both")
        if self.text(timestamp):
            # Rounded outwards: the log service knows times in whole seconds.
            return Bound(unix_s=self.value(timestamp, lambda text: _unix_s(text, up=prefix == "ending"), 0))
        words = {"earliest": EARLIEST, "latest": LATEST} if prefix == "starting" else {"latest": LATEST}
        return self.value(offsets, lambda text: _offsets(text, words), Bound(everywhere=default))


def _spelled(name: str) -> str:
    return next((one for one in EVERY if one.lower() == name), name)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError("must be a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0.05 <= seconds <= 3600:
        raise ValueError("must be a number of seconds from 0.05 to 3600")
    return seconds


def _mode(text: str) -> bool:
    if text.upper() not in ("PERMISSIVE", "FAILFAST"):
        raise ValueError("must be PERMISSIVE or FAILFAST")
    return text.upper() == "FAILFAST"


def _shards(text: str) -> frozenset[int]:
    shards: set[int] = set()
    for part in text.split(","):
        first, dash, last = (one.strip() for one in part.partition("-"))
        last = last if dash else first
        if not (first.isdigit() and last.isdigit() and int(first) <= int(last) < MAX_SHARD):
            raise ValueError("must be numbers of shards such as 0,2,5-7")
        if int(last) - int(first) > 1 << 16:
            raise ValueError("has more shards than a logstore can have")
        shards.update(range(int(first), int(last) + 1))
    return frozenset(shards)


def _unix_s(text: str, *, up: bool) -> int:
    if text.lstrip("-").isdigit():
        milliseconds = int(text)
        seconds = -(-milliseconds // 1000) if up else milliseconds // 1000
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ValueError(
                "must be milliseconds since 1970, or a time with its offset such as 2026-01-31T08:00:00Z"
            )
        exact = moment.timestamp()
        seconds = -int(-exact // 1) if up else int(exact // 1)
    if seconds < 0:
        raise ValueError("must not be before 1970")
    return seconds


def _offsets(text: str, words: Mapping[str, int]) -> Bound:
    if text.lower() in words:
        return Bound(everywhere=words[text.lower()])
    form = f'must be {" or ".join(words)} or cursors by shard such as {{"0": 1767, "1": "MTc2Nw=="}}'
    try:
        document = json.loads(text)
    except ValueError:
        raise ValueError(form) from None
    if not isinstance(document, dict) or not document:
        raise ValueError(form)
    return Bound(
        by_shard={_shard(name, form): _cursor(value, form, words) for name, value in document.items()}
    )


def _shard(name: str, form: str) -> int:
    if not name.isdigit():
        raise ValueError(form)
    return int(name)


def _cursor(value: Any, form: str, words: Mapping[str, int]) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and (value >= 0 or value in words.values()):
        return value
    if isinstance(value, str):
        try:
            return decode_cursor(value)
        except MalformedInput:
            pass
    raise ValueError(form)
