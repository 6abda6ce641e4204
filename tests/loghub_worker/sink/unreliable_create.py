"""Create-only steps of a commit log whose outcome is not what the call says: hard links on NFS, PUTs to a
bucket.

A reply is lost and the repeated request finds what the first has made (link(2), BUGS), a request is carried
out later than its error, or a client reports an existing name as success.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from loghub_worker.sink.files.bucket import Bucket, ObjectStorageError
from tests.loghub_worker.sink.commit_log_child import BUCKET

REAL_LINK, REAL_CREATE = os.link, Bucket.create


class Call(Protocol):
    """One call that creates a name, and how it can end."""

    def do(self) -> None:
        """Create the name unless it exists or the call has lost its content."""

    def later(self) -> Callable[[], None]:
        """A request that is still under way: `do`, whatever the caller does meanwhile."""

    def done(self) -> Any:
        """Report success."""

    def existing(self) -> Any:
        """Report that the name exists."""

    def fail(self) -> Any:
        """Report an error."""


class LinkCall:
    """A call of `os.link`."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target

    def do(self) -> None:
        if self._source.exists() and not self._target.exists():
            REAL_LINK(self._source, self._target)

    def later(self) -> Callable[[], None]:
        # A link to a copy, since the caller removes its file after the error.
        copy = self._source.with_name(f"{self._source.name}.in-flight")
        copy.write_bytes(self._source.read_bytes())
        return LinkCall(copy, self._target).do

    def done(self) -> None:
        return

    def existing(self) -> None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._target))

    def fail(self) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._target))


class CreateCall:
    """A call of `Bucket.create`."""

    def __init__(self, bucket: Bucket, key: str, content: bytes) -> None:
        self._bucket, self._key, self._content = bucket, key, content

    def do(self) -> None:
        REAL_CREATE(self._bucket, self._key, self._content)

    def later(self) -> Callable[[], None]:
        return self.do

    def done(self) -> bool:
        return True

    def existing(self) -> bool:
        return False

    def fail(self) -> bool:
        raise ObjectStorageError(f"no answer for {self._key}")


class Unreliable:
    """Calls, of which the `nth` is not what it says; all of them if `nth` is 0."""

    def __init__(self, nth: int, lie: "Lie") -> None:
        self.calls = 0
        self.delayed: list[Callable[[], None]] = []
        self.before: Callable[[], None] = lambda: None
        self._nth = nth
        self._lie = lie

    def outcome(self, call: Call, real: Callable[[], Any]) -> Any:
        self.calls += 1
        delayed, self.delayed = self.delayed, []
        for do in delayed:
            do()
        if self._nth not in (0, self.calls):
            return real()
        before, self.before = self.before, lambda: None
        before()
        return self._lie(self, call)


Lie = Callable[[Unreliable, Call], Any]


def unreliable(site: Path, monkeypatch: pytest.MonkeyPatch, nth: int, lie: Lie) -> Unreliable:
    """Make the creation of claims and decisions in the sink of this folder unreliable. Openings are not
    counted: a folder has them without links."""
    calls = Unreliable(nth, lie)

    def create(bucket: Bucket, key: str, content: bytes) -> bool:
        if "/openings/" in key:
            return REAL_CREATE(bucket, key, content)
        call = CreateCall(bucket, key, content)
        return bool(calls.outcome(call, lambda: REAL_CREATE(bucket, key, content)))

    if (site / BUCKET).exists():
        monkeypatch.setattr(Bucket, "create", create)
    else:
        monkeypatch.setattr(
            os,
            "link",
            lambda source, target: calls.outcome(LinkCall(source, target), lambda: REAL_LINK(source, target)),
        )
    return calls


def done_but_reported_as_existing(_: Unreliable, call: Call) -> Any:
    call.do()
    return call.existing()


def done_but_reported_as_failed(_: Unreliable, call: Call) -> Any:
    call.do()
    return call.fail()


def failed(_: Unreliable, call: Call) -> Any:
    return call.fail()


def done_later_than_reported_as_failed(calls: Unreliable, call: Call) -> Any:
    calls.delayed.append(call.later())
    return call.fail()


def existing_but_reported_as_done(_: Unreliable, call: Call) -> Any:
    call.do()
    return call.done()


def not_done_but_reported_as_done(_: Unreliable, call: Call) -> Any:
    return call.done()


LIES: list[Lie] = [
    done_but_reported_as_existing,
    done_but_reported_as_failed,
    done_later_than_reported_as_failed,
    failed,
    existing_but_reported_as_done,
    not_done_but_reported_as_done,
]
