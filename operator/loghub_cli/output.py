"""What users see of a command: values as a table, JSON or YAML, the message of a failure, and the progress of
a long command.

A command describes what it shows as a dict, or a list of dicts, with camelCase keys, whose values are texts,
numbers, bools, None, or lists of such dicts. A table shows the keys of a list as headings and None as "-";
JSON and YAML have the values themselves, so that a program never parses a table.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum

import click
import yaml
from rich.cells import cell_len

from loghub.clock import Clock
from loghub.progress_line import ProgressLine


class Failed(click.ClickException):
    """Something that the user asked is not done, or not all of it."""

    exit_code = 1


class InvalidInput(click.ClickException):
    """A file that cannot be used: of configuration, of a group, or of logs."""

    exit_code = 2


class ShownProgress:
    """Call `show` as often as you like: few calls write."""

    def __init__(self, clock: Clock, *, enabled: bool | None = None) -> None:
        self._line = ProgressLine(clock, enabled=enabled)

    def show(self, logs: int, size: int, *, total: int | None = None) -> None:
        """``total``: bytes that there will be, if that is known."""
        share = f" of {total / 1e6:.1f}" if total else ""
        self._line.show(
            lambda seconds: (
                f"{logs:,} logs, {size / 1e6:.1f}{share} MB, {logs / max(seconds, 0.001):,.0f} logs/s"
            )
        )

    def clear(self) -> None:
        self._line.clear()


Record = Mapping[str, object]
_NOTHING = "-"
# Also what has no width or turns the direction of writing, but not what joins letters of Persian and emoji.
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]"
)


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def render(value: Record | Sequence[Record], form: Format) -> str:
    """The whole output of a command, without a line break at its end."""
    if form is Format.JSON:
        return json.dumps(_plain(value), indent=2, ensure_ascii=False)
    if form is Format.YAML:
        return as_yaml(value).rstrip("\n")
    return table(value) if isinstance(value, Sequence) else _sections(value)


def as_yaml(value: Record | Sequence[Record]) -> str:
    return yaml.safe_dump(_plain(value), sort_keys=False, allow_unicode=True, width=1 << 16)


def table(rows: Sequence[Record]) -> str:
    """Aligned columns under the keys of the first row; numbers to the right. Chinese characters are two
    columns wide."""
    if not rows:
        return "(none)"
    keys = [key for key, value in rows[0].items() if not value or not _is_list_of_records(value)]
    cells = [[_cell(row.get(key)) for key in keys] for row in rows]
    right = [is_numeric([row.get(key) for row in rows]) for key in keys]
    return aligned([_head(key) for key in keys], cells, right=right)


def aligned(heads: Sequence[str], cells: Sequence[Sequence[str]], *, right: Sequence[bool]) -> str:
    """Lines of cells below their heads; ``right`` says of each column whether it is aligned to the right."""
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    lines = [
        "  ".join(
            _padded(text, width, to_right=to_right)
            for text, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in (heads, *cells)
    ]
    return "\n".join(lines)


def _padded(text: str, width: int, *, to_right: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if to_right else text + space


def _sections(record: Record) -> str:
    """One line for each value, and below them a table for each list."""
    single = {key: value for key, value in record.items() if not _is_list_of_records(value)}
    width = max((len(key) for key in single), default=0) + 1
    lines = [f"{key + ':':{width}}  {_cell(value)}" for key, value in single.items()]
    for key, value in record.items():
        if _is_list_of_records(value) and isinstance(value, Sequence):
            lines += ["", f"{key}:", *(f"  {line}" for line in table(value).splitlines())]
    return "\n".join(lines)


def _is_list_of_records(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, Mapping) for one in value)


def is_numeric(column: Sequence[object]) -> bool:
    values = [value for value in column if value is not None]
    return bool(values) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _head(key: str) -> str:
    """``beginKey`` as ``BEGIN KEY``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key).upper()


def _cell(value: object) -> str:
    if value is None or value == "":
        return _NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or _NOTHING
    return on_one_line(f"{value:.1f}" if isinstance(value, float) else str(value))


def on_one_line(text: str) -> str:
    r"""The text with control characters as ``\x1b``: what is stored anywhere must not control a terminal."""
    return _CONTROL.sub(lambda character: character[0].encode("unicode_escape").decode(), text)


def utc(unix_s: float | None) -> str | None:
    """A time as ``2026-01-31T08:00:00Z``; None for an unknown one, and for one of no year."""
    if unix_s is None:
        return None
    try:
        return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None


def unix_s(time: str | None) -> float | None:
    """Unix seconds of a time as Kubernetes writes it (RFC 3339); None without one, or in another form."""
    try:
        return None if not time else datetime.fromisoformat(time).timestamp()
    except ValueError:
        return None


def short_age(seconds: float) -> str:
    """An age in one unit, as kubectl shows it: ``34s``, ``5m``, ``3h``, ``12d``."""
    whole = max(0, int(seconds))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * unit:
            return f"{whole // unit}{name}"
    return f"{whole}s"
