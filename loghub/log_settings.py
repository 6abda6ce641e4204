"""The settings of a worker's own log, as `loghub.worker_contract` passes them on."""

from typing import Literal

import msgspec

LogLevel = Literal["Debug", "Info", "Warn", "Error"]
LogFormat = Literal["Text", "JSON"]


class LogFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file in addition to standard error: ``<consumer>.log`` in the folder, and its backups
    ``<consumer>.log.1``, ``.2`` .., the latest first, with ``.gz`` if they are compressed."""

    folder: str | None = None  # absolute; None: ``log`` in the worker's state directory
    max_size_mib: int = 10  # the file is rotated before it exceeds this
    max_backups: int = 10  # older ones are removed
    compress: bool = False


class LogSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker logs, how, and where besides standard error."""

    level: LogLevel = "Info"  # less severe messages are left out
    format: LogFormat = "Text"
    file: LogFile | None = None
