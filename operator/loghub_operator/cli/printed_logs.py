"""The options by which `pull` and `tail` print logs, and the printing.

A table has one line for each log, JSON one object on one line, YAML one document. ``--field`` prints the bare
value of one field instead, so that lines which were put in come out unchanged.
"""

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from loghub.wire.loggroup import Log, LogGroup
from loghub_operator.cli.log_lines import Place, as_line, as_record, value_of
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
                text = self._text(log, stored.group, place)
                if text is not None:
                    sys.stdout.write(text + "\n")
                    self.printed += 1
        sys.stdout.flush()

    def _text(self, log: Log, group: LogGroup, place: Place) -> str | None:
        if self.field is not None:
            return value_of(log, self.field)
        if self.form is Format.TABLE:
            return as_line(log, place)
        record = as_record(log, group, place)
        if self.form is Format.JSON:
            return json.dumps(record, ensure_ascii=False)
        return f"---\n{as_yaml(record)}".rstrip("\n")


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
