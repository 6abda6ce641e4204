"""The dead letter: where log groups go that the pipeline rejects, if that is the group's policy.

A log group is written with its origin before its shard continues after it. A crash in between writes it
again: a second log group in a logstore, the same file in a folder.
"""

import base64
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

import msgspec

from loghub.atomic_file import replace_file
from loghub.client.port import LogHub
from loghub.contract.worker import DeadLetterFolder, DeadLetterLogstore, WorkerConfig, WorkerReason
from loghub.wire import loggroup, loggroup_validation
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code, LogHubError, MalformedInput, MalformedLogGroup
from loghub.wire.loggroup import LogGroup, encode
from loghub_consumer.errors import FatalError
from loghub_consumer.failure.retry_logstore import SUBSCRIPTION_KIND, Origin
from loghub_consumer.log_service import LogServiceAddress, connect, put_log_group

DEAD_LETTER_UNAVAILABLE = WorkerReason.DEAD_LETTER_UNAVAILABLE.value
TAG_PREFIX = "dead_letter_"
# Keeps the log group and its tags together below the maximum size that a service accepts.
MAX_MESSAGE_CHARS = 1000
NAME_DIGITS = 16  # hexadecimal, of a digest: among a million logs of one cursor, 1 in 37 million share a name


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A log group that could not be delivered, and why."""

    shard: int
    cursor: int
    reason: str
    message: str
    attempts: int
    rejected_unix_s: float
    origin: Origin | None = None  # where the logs were at first; None: the origin of the target
    retries: int = 0  # how often they have waited in a retry logstore, including the next time
    delay_s: float | None = None  # seconds that they must wait; None: they are not tried again
    # The logs of the log group that were rejected, if not all as they were written: different logs have
    # different texts.
    part: str = ""


class DeadLetterTarget(Protocol):
    """A place for log groups that could not be delivered."""

    def check(self) -> None:
        """Raises `OSError` if nothing can be written. Whether a log service would accept a log group is not
        known before the first one is written."""

    def write(self, log_group: bytes, rejection: Rejection) -> None:
        """Write one log group, durably. Raises `OSError` or `LogHubException` if it may be missing."""


class DeadLetters:
    """Reads a rejected log group again, byte by byte as it was written, and puts it into the target."""

    def __init__(self, source: LogHub, origin: Origin, target: DeadLetterTarget) -> None:
        self._source = source
        self._logstore = origin.logstore
        self._target = target

    def check(self) -> None:
        self._target.check()

    def write(self, rejection: Rejection) -> bool:
        """Returns False if the log group no longer exists. Raises `OSError` or `LogHubException`; the log
        group may be missing then."""
        log_group = self._read(rejection.shard, rejection.cursor)
        if log_group is None:
            return False
        self._target.write(log_group, rejection)
        return True

    def _read(self, shard: int, cursor: int) -> bytes | None:
        pulled = self._source.pull_logs(
            self._logstore,
            shard,
            cursor=encode_cursor(cursor),
            count=1,
            end_cursor=encode_cursor(cursor + 1),
        )
        after = decode_cursor(pulled.next_cursor) if pulled.next_cursor else cursor
        log_group = next(loggroup.split(pulled.body), None)
        if after == cursor + 1 and log_group is not None:
            return bytes(log_group)
        # The service moves a cursor past expired log groups (docs/sls-protocol.md 7.8).
        if after > cursor:
            return None
        raise LogHubError(
            Code.BAD_RESPONSE,
            HTTPStatus.OK,
            f"shard {shard} returned nothing at cursor {cursor}, where a log group failed before",
        )


class LogstoreTarget:
    """A logstore. Each log group keeps its bytes, and gets tags with its origin, whose names begin with the
    prefix. A log group that is too large for the service with these tags is written as several, of half its
    logs each."""

    def __init__(self, client: LogHub, logstore: str, origin: Origin, *, prefix: str = TAG_PREFIX) -> None:
        self._prefix = prefix
        self._client = client
        self._logstore = logstore
        self._origin = origin

    def check(self) -> None:
        """Does nothing, see `DeadLetterTarget`."""

    def write(self, log_group: bytes, rejection: Rejection) -> None:
        described = description(self._origin, rejection).items()
        tags = tuple((f"{self._prefix}{name}", str(value)) for name, value in described)
        self._put(log_group, encode(LogGroup(logs=(), tags=tags)))

    def _put(self, log_group: bytes, tags: bytes) -> None:
        try:
            # Concatenated messages of Protocol Buffers are merged, so the log group has both its own tags and
            # these.
            put_log_group(self._client, self._logstore, log_group + tags, hash_key=None)
        except LogHubError as error:
            halves = _halves(log_group) if error.code == Code.POST_BODY_TOO_LARGE else []
            if not halves:
                raise
            for half in halves:
                self._put(half, tags)


class FolderTarget:
    """A folder with one JSON file for each log group, or for each part of a log group that is written by
    itself. The name has a digest of the part, so that the same logs have the same file and no other logs have
    it."""

    def __init__(self, folder: Path, origin: Origin) -> None:
        self._root = folder
        self._origin = origin

    def _folder_of(self, origin: Origin) -> Path:
        name = origin.consumer_group
        if origin.is_subscription:  # the name of a group has no point
            name = f"{name}.{SUBSCRIPTION_KIND}"
        return self._root.joinpath(origin.project, origin.logstore, name)

    def check(self) -> None:
        folder = self._folder_of(self._origin)
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / f".trial-{secrets.token_hex(8)}"
        trial.touch()
        trial.unlink()

    def write(self, log_group: bytes, rejection: Rejection) -> None:
        folder = self._folder_of(rejection.origin or self._origin)
        folder.mkdir(parents=True, exist_ok=True)
        described = description(self._origin, rejection) | {
            "logs": _readable(log_group),
            "logGroup": base64.b64encode(log_group).decode(),
        }
        meant = hashlib.sha256(rejection.part.encode() + b"\n" + log_group).hexdigest()
        path = folder / f"{rejection.shard}-{rejection.cursor}-{meant[:NAME_DIGITS]}.json"
        replace_file(path, msgspec.json.encode(described) + b"\n", durable=True)


def description(origin: Origin, rejection: Rejection) -> dict[str, Any]:
    """The origin of a log group, and why it was not delivered."""
    origin = rejection.origin or origin
    waits: dict[str, Any] = {"retries": rejection.retries} if rejection.retries else {}
    if rejection.delay_s is not None:
        waits["delay_ms"] = round(rejection.delay_s * 1000)
        waits["not_before_ms"] = round((rejection.rejected_unix_s + rejection.delay_s) * 1000)
    kind = {"kind": SUBSCRIPTION_KIND} if origin.is_subscription else {}
    return {
        "project": origin.project,
        "logstore": origin.logstore,
        "consumer_group": origin.consumer_group,
        **kind,
        "shard": rejection.shard,
        "cursor": encode_cursor(rejection.cursor),
        "reason": rejection.reason,
        # Messages of other programs may contain lone surrogates, which neither JSON nor a tag can represent.
        "message": rejection.message.encode(errors="replace").decode()[:MAX_MESSAGE_CHARS],
        "attempts": rejection.attempts,
        "time": datetime.fromtimestamp(int(rejection.rejected_unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    } | waits


def _readable(log_group: bytes) -> list[dict[str, Any]] | None:
    """The logs for a human reader, with U+FFFD in place of bytes that are not text; None if the log group
    cannot be decoded."""
    try:
        logs = loggroup.decode(log_group).logs
    except MalformedLogGroup:
        return None
    return [
        {"time": log.time, "contents": [[_text(key), _text(value)] for key, value in log.contents]}
        for log in logs
    ]


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _halves(log_group: bytes) -> list[bytes]:
    """Two log groups with half of the logs each; empty if there is only one log."""
    try:
        logs = loggroup_validation.scan(log_group)
    except MalformedInput:
        return []
    return [half for half, _ in loggroup.cut(log_group, maximum=-(-logs // 2))] if logs > 1 else []


def make_target(
    settings: DeadLetterLogstore | DeadLetterFolder, origin: Origin, connect_to: Callable[[str], LogHub]
) -> DeadLetterTarget:
    """The target that the settings name. `connect_to` makes a connection to a project."""
    if isinstance(settings, DeadLetterFolder):
        return FolderTarget(Path(settings.path), origin)
    return LogstoreTarget(connect_to(settings.project), settings.logstore, origin)


def make_dead_letters(
    settings: DeadLetterLogstore | DeadLetterFolder, origin: Origin, source: LogServiceAddress, *, agent: str
) -> DeadLetters:
    """The dead letter of a worker's settings. Only the thread that writes to it may use it."""
    target = make_target(
        settings, origin, lambda project: connect(replace(source, project=project), agent=agent)
    )
    return DeadLetters(connect(source, agent=agent), origin, target)


def checked_dead_letters(
    config: WorkerConfig, source: LogServiceAddress, *, agent: str
) -> DeadLetters | None:
    """The dead letter of a worker's settings; None if they name none. Raises `FatalError`
    ``DeadLetterUnavailable``."""
    if config.on_failure.dead_letter is None:
        return None
    origin = Origin(project=config.project, logstore=config.logstore, consumer_group=config.consumer_group)
    dead_letters = make_dead_letters(config.on_failure.dead_letter, origin, source, agent=agent)
    try:
        dead_letters.check()
    except OSError as error:
        raise FatalError(DEAD_LETTER_UNAVAILABLE, str(error)) from error
    return dead_letters
