"""The steps of a worker's start that need the target of the sink, and the sink's credentials.

A target that is unavailable for a while ends no start: a restarted process would try the same steps, after
the kubelet's pauses, which grow to minutes. So each step is repeated here until it succeeds, and the status
says what is wrong meanwhile. The worker is no member of its group yet and holds no shard.

The credentials of a sink that is not the log service are user names, passwords and keys. They are files in
the folder that ``LOGHUB_SINK_CREDENTIALS_DIR`` names, in a pod the mounted Secret of
``spec.pipeline.sink.credentialsSecret``. The name of a file is the name of its value. A file is read each
time it is needed, so that a rotated key takes effect without a restart.
"""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import structlog

from loghub.backoff import Backoff
from loghub.contract.worker import ENV_SINK_CREDENTIALS_DIR, WorkerReason
from loghub_consumer.errors import FatalError
from loghub_consumer.log_service import ReportedError
from loghub_worker.sink.batch_sink import InvalidSinkError

log = structlog.get_logger()


class CredentialFiles:
    """The values in one folder; without a folder there are none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def given(self) -> bool:
        """Whether there is a folder, so that only its values are used."""
        return self._folder is not None

    @property
    def folder(self) -> Path | None:
        """The folder; None if there is none."""
        return self._folder

    def get(self, name: str) -> str | None:
        """A value, without a line break at its end; None if it is absent. Raises `OSError` if it cannot be
        read."""
        if self._folder is None:
            return None
        try:
            return (self._folder / name).read_text(encoding="utf-8").rstrip("\r\n")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise OSError(
                errno.EINVAL, "the credential is not UTF-8 text", str(self._folder / name)
            ) from None

    def all(self) -> dict[str, str]:
        """Every value by its name. Raises `OSError`."""
        if self._folder is None:
            return {}
        # A mounted Secret has folders of its own, such as ..data, next to the files.
        names = sorted(path.name for path in self._folder.iterdir() if path.is_file())
        return {name: value for name in names if (value := self.get(name)) is not None}

    def file(self, name: str) -> Path | None:
        """The file of a value, for libraries that read it themselves; None if it is absent."""
        path = None if self._folder is None else self._folder / name
        return path if path is not None and path.is_file() else None

    def require(self, name: str) -> str:
        """A value. Raises `InvalidSinkError` if it is absent, and `OSError`."""
        value = self.get(name)
        if not value:
            raise InvalidSinkError(
                f"the sink needs {name!r}: name a Secret with this key in"
                " spec.pipeline.sink.credentialsSecret, or without a cluster put a file of this name into the"
                f" folder that {ENV_SINK_CREDENTIALS_DIR} names"
            )
        return value


NO_CREDENTIALS = CredentialFiles(None)


T = TypeVar("T")
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 30.0


class SinkStart:
    """Takes steps, one after another."""

    def __init__(self, wait: Callable[[float], None], *, random: Callable[[], float]) -> None:
        """`wait` waits for a number of seconds, and raises what ends the start; `random` is as in
        `Backoff`."""
        self._wait = wait
        self._backoff = Backoff(first_s=FIRST_PAUSE_S, max_s=MAX_PAUSE_S, random=random)
        self.error = ReportedError()  # why the step has not succeeded yet

    def take(self, step: Callable[[], T]) -> T:
        """The result of the step, once the target can be used. Raises `FatalError` ``InvalidSink`` if no
        repetition can help, and any other error of the step."""
        failures = 0
        while True:
            try:
                result = step()
            except InvalidSinkError as error:
                raise FatalError(WorkerReason.INVALID_SINK, str(error)) from error
            except OSError as error:
                failures += 1
                self.error = ReportedError(WorkerReason.SINK_UNAVAILABLE, str(error))
                log.warning(
                    "the sink cannot be used, will retry",
                    reason=WorkerReason.SINK_UNAVAILABLE,
                    message=str(error),
                    consecutive_failures=failures,
                )
                self._wait(self._backoff.pause_s(failures))
            else:
                self.error = ReportedError()
                return result
