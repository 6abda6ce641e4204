"""The options by which `pull` and `tail` print logs, and the printing.

A table has one line for each log, JSON one object on one line, YAML one document. ``--field`` prints the bare
value of one field instead, so that lines which were put in come out unchanged.
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from loghub.wire.loggroup import Log, LogGroup
from loghub_operator.cli.log_lines import Place, as_json, as_line, as_members, value_of
from loghub_operator.cli.options import format_option
from loghub_operator.cli.output import Format, as_yaml
from loghub_operator.cli.stored_groups import StoredGroup

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class LogPrinter:
    """Prints logs until ``limit`` are printed."""

    form: Format
    field: str | None
    limit: int | None
    printed: int = 0

    @property
    def is_done(self) -> bool:
        return self.limit is not None and self.printed >= self.limit

    def show(self, groups: Iterable[StoredGroup]) -> None:
        """Prints the logs of these groups and hands them to the reader at once."""
        for stored in groups:
            for index, log in enumerate(stored.group.logs):
                if self.is_done:
                    break
                place = Place(shard=stored.shard, cursor=stored.cursor, index=index)
                self._print(log, stored.group, place)
        sys.stdout.flush()

    def _print(self, log: Log, group: LogGroup, place: Place) -> None:
        if self.field is None:
            sys.stdout.write(self._text(log, group, place) + "\n")
        else:
            value = value_of(log, self.field)
            if value is None:
                return
            # As bytes: a value need not be text, nor text that the terminal's encoding has.
            sys.stdout.flush()
            sys.stdout.buffer.write(value + b"\n")
        self.printed += 1

    def _text(self, log: Log, group: LogGroup, place: Place) -> str:
        if self.form is Format.TABLE:
            return as_line(log, place)
        members = as_members(log, group, place)
        if self.form is Format.JSON:
            return as_json(members)
        once = dict(members)
        parts = [once] if len(once) == len(members) else [{name: value} for name, value in members]
        return f"---\n{''.join(map(as_yaml, parts))}".rstrip("\n")


def prints_logs(function: F) -> F:
    """Adds the options; the function gets ``printer``."""

    @wraps(function)
    def run(*args: Any, output: str, field: str | None, limit: int | None, **kwargs: Any) -> Any:
        return function(*args, printer=LogPrinter(Format(output), field, limit), **kwargs)

    decorated: Any = run
    for option in (
        click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="End after N logs."),
        click.option("--field", help="Print the value of this field only, of the logs that have it."),
        format_option,
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
