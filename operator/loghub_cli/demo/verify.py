"""Compare the sink with the producer's record, and count lost and duplicate lines.

The demo ends with this check, and ``python -m loghub_cli.demo.verify RECORD SINK`` repeats it at any
later time. It reads the files with pyarrow, as any other reader would, and is independent of the worker that
wrote them. pyarrow is a dependency of the worker, so it is imported where it is used: without it the demo
prints one line that says so.

Exit status: 0 every line is in the sink exactly once; 1 it is not; 2 invalid input.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from loghub_cli.commands import exit_status
from loghub_cli.demo.ground_truth import Identity, Truth, identity, read_record

COLUMNS = ("file", "pass", "number", "line")
ROWS_AT_ONCE = 65_536  # a few MiB in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Numbers of lines. ``foreign`` counts the rows that match no line of the record, also the rows with a
    changed text."""

    sent: int
    in_sink: int
    lost: int
    duplicates: int
    foreign: int
    unsure: int

    @property
    def exactly_once(self) -> bool:
        return self.lost == 0 and self.duplicates == 0 and self.foreign == 0

    def __str__(self) -> str:
        text = f"sent {self.sent}, in the sink {self.in_sink}, lost {self.lost}, duplicates {self.duplicates}"
        if self.foreign:
            text += f", never sent or changed {self.foreign}"
        return text + (f" ({self.unsure} sent without an answer)" if self.unsure else "")


def compare(truth: Truth, sink: Counter[Identity]) -> Verdict:
    """Compare as multisets: equal lines of a file are distinguished by their numbers."""
    lost = (truth.sent - sink).total()
    duplicates = foreign = 0
    for line, count in sink.items():
        if line in truth.sent or line in truth.unsure:
            duplicates += count - 1
        else:
            foreign += count
    return Verdict(
        sent=truth.sent.total(),
        in_sink=sink.total(),
        lost=lost,
        duplicates=duplicates,
        foreign=foreign,
        unsure=truth.unsure.total(),
    )


def sink_files(folder: Path) -> tuple[Path, ...]:
    """The Parquet files that a reader of the folder sees: names that begin with ``_`` or ``.`` are hidden."""
    paths: list[Path] = []
    # Not rglob: workers create and remove hidden folders in the meantime, and it would fail on them.
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        paths += [
            Path(parent, name)
            for name in files
            if name.endswith(".parquet") and not name.startswith(("_", "."))
        ]
    return tuple(sorted(paths))


def read_sink(folder: Path) -> Counter[Identity]:
    """Every row of every file."""
    rows: Counter[Identity] = Counter()
    for path in sink_files(folder):
        rows.update(_rows(path))
    return rows


def _rows(path: Path) -> Iterator[Identity]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(COLUMNS)):
            columns = (batch.column(name).to_pylist() for name in COLUMNS)
            for name, turn, number, text in zip(*columns, strict=True):
                yield identity(str(name), turn or 0, number or 0, text or "")


class SinkCounter:
    """Counts the rows that are visible now by the files' footers; each file is opened once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, int] = {}

    def count(self) -> int:
        import pyarrow.parquet as pq

        for path in sink_files(self._folder):
            if path not in self._known:
                self._known[path] = pq.read_metadata(path).num_rows
        return sum(self._known.values())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the verdict and return the exit status."""
    return exit_status(command, arguments, "python -m loghub_cli.demo.verify")


@click.command(no_args_is_help=True)
@click.argument("record", type=click.Path(path_type=Path))
@click.argument("sink", type=click.Path(path_type=Path))
def command(record: Path, sink: Path) -> int:
    """Compare SINK, the folder with the Parquet files, with the producer's RECORD, and count lost and
    duplicate lines.

    Exit status: 0 every line is in the sink exactly once; 1 it is not; 2 invalid input.
    """
    try:
        verdict = compare(read_record(record), read_sink(sink))
    except OSError as error:
        click.echo(f"check: {error}", err=True)
        return 2
    click.echo(verdict)
    return 0 if verdict.exactly_once else 1


if __name__ == "__main__":
    sys.exit(main())
