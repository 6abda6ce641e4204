"""The credentials of a sink that is not the log service: user names, passwords, keys.

They are files in the folder that ``LOGHUB_SINK_CREDENTIALS_DIR`` names, in a pod the mounted Secret of
``spec.pipeline.sink.credentialsSecret``. The file's name is that of the value. A file is read each time it is
needed, so that a rotated key takes effect without a restart.
"""

import errno
from pathlib import Path

from loghub.worker_contract import ENV_SINK_CREDENTIALS_DIR
from loghub_worker.sink.batch_sink import InvalidSinkError


class SinkCredentials:
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


NO_CREDENTIALS = SinkCredentials(None)
