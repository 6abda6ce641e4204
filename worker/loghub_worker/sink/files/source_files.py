"""Lets the tasks that read the logs of a batch write its files, too, so that no row passes through Spark's
JVM (`loghub_worker.sink.files.task_files`).

A query that Arrow computes as Spark would needs nothing else of Spark than its tasks: which ranges are read,
where, and how often a failed task is repeated. Each task returns a `Manifest` as its only row.
"""

import base64
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from loghub_consumer.reading.decoding import Selection
from loghub_worker.sink.batch_sink import RowsRejectedError
from loghub_worker.sink.files.formats import folder_obstacle, partition_folder
from loghub_worker.sink.files.json_lines import lines
from loghub_worker.sink.files.task_files import FileOptions, Manifest, Part, WrittenFile, merged, write_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class RowsByArrow(Protocol):
    """A query that Arrow computes as Spark would. It can be pickled."""

    @property
    def selection(self) -> Selection:
        """The columns that it needs."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of its rows, as Spark has it."""

    def apply(self, logs: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of these logs. Raises `RowsRejectedError` with Spark's words where Spark would refuse a
        log."""


class SourceFileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the files of all batches of one query are written."""

    files: FileOptions
    # What the folder of a batch, or the keys of its objects, begin with; then comes the token of the batch.
    prefix: str
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceWriting:
    """What a task that reads and writes needs to know."""

    query: RowsByArrow
    options: SourceFileOptions

    def to_text(self) -> str:
        return base64.b85encode(pickle.dumps(self)).decode()

    @staticmethod
    def from_text(text: str) -> "SourceWriting":
        """Only for a text of this worker: Spark passes its own objects to its processes in the same way."""
        writing = pickle.loads(base64.b85decode(text))  # noqa: S301
        assert isinstance(writing, SourceWriting)
        return writing

    def write(self, token: str, logs: Iterable[pa.RecordBatch]) -> Manifest:
        """Write the rows of these logs as files of the batch with this token. Passes on the errors of
        `logs`."""
        reading = _Reading(logs)
        rows = map(self.query.apply, reading)
        manifest = write_rows(self.options, f"{self.options.prefix}{token}", self.query.schema, rows)
        if reading.error is not None:
            raise reading.error
        return manifest


class _Reading:
    """Logs that are read, and the error of reading that would be taken for an error of writing."""

    def __init__(self, logs: Iterable[pa.RecordBatch]) -> None:
        self._logs = logs
        self.error: OSError | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._logs
        except OSError as error:
            self.error = error
            raise


@runtime_checkable
class LetsSourceWrite(Protocol):
    """A sink that takes files which tasks of the source have written."""

    def let_source_write(self, empty: "DataFrame", *, consumer: str, is_elsewhere: bool) -> SourceFileOptions:
        """How the tasks, perhaps on other machines, write the files of batches of this consumer from now on:
        `write` then gets the manifests in place of rows. Raises `InvalidSinkError` if the files would differ
        from Spark's."""


def write_rows(
    options: SourceFileOptions, where: str, schema: pa.Schema, rows: Iterable[pa.RecordBatch]
) -> Manifest:
    """Write all rows, which have this schema, as `task_files.write_files` does."""
    by = options.partition_by
    data = [number for number, name in enumerate(schema.names) if name not in by]
    parts = _parts(rows, by, data) if by else (("", batch) for batch in rows)
    columns = pa.schema([schema.field(number) for number in data])
    if options.files.parquet is None:
        columns = pa.schema([pa.field("line", pa.string())])
        parts = ((folder, pa.record_batch([lines(batch)], columns)) for folder, batch in parts)
    return write_files(options.files, where, columns, parts, partition_by=by)


def _parts(rows: Iterable[pa.RecordBatch], by: Sequence[str], data: Sequence[int]) -> Iterator[Part]:
    """The rows by partition, within a batch, and without the partition columns."""
    for batch in rows:
        if not batch.num_rows:
            continue
        texts = [pc.cast(batch.column(name), pa.string()) for name in by]
        partitions = partition_numbers(texts)
        order = pc.array_sort_indices(partitions)
        begin = 0
        for end in pc.run_end_encode(partitions.take(order)).run_ends.to_pylist():
            row = order[begin].as_py()
            folder = partition_folder(by, [text[row].as_py() for text in texts])
            if (said := folder_obstacle(folder, by)) is not None:
                raise RowsRejectedError(f"the rows have {said}")
            # A copy: a slice of a few rows, which wait long for more, would keep the rows of all partitions.
            yield folder, batch.select(data).take(order.slice(begin, end - begin))
            begin = end


def partition_numbers(texts: Sequence[pa.Array]) -> pa.Array:
    """A number for each row, which rows of the same texts share. The numbers are always less than the number
    of rows, so that their products with another column's number of texts do not overflow."""
    numbers = pa.array([0] * len(texts[0]), pa.int64())
    for text in texts:
        encoded = text.dictionary_encode(null_encoding="encode")
        pairs = pc.add(pc.multiply(numbers, len(encoded.dictionary)), encoded.indices.cast(pa.int64()))
        numbers = pairs.dictionary_encode().indices.cast(pa.int64())
    return numbers


def try_to_write(options: SourceFileOptions, stage: Path, schema: pa.Schema) -> None:
    """Write a file of no rows into a staging folder, as tasks on this machine would, which is much faster
    than by Spark. Raises `OSError`."""
    files = msgspec.structs.replace(options.files, even_if_empty=True)
    merged([write_rows(msgspec.structs.replace(options, files=files), str(stage), schema, ())])


def collected(manifests: "DataFrame") -> list[WrittenFile]:
    """What all tasks of a batch have written, once they have. Raises `RowsRejectedError`, `OSError` for an
    outage, and errors of Spark."""
    return merged(msgspec.json.decode(row[0], type=Manifest) for row in manifests.collect()).files


def named_as_data(stage: Path, files: Sequence[WrittenFile]) -> dict[Path, WrittenFile]:
    """Give the files of a batch in its staging folder names of data files, in the folders of their
    partitions, in this order."""
    named = {}
    for number, file in enumerate(files):
        token = file.name.lstrip("_").partition("-")[0]
        path = stage / file.folder / f"part-{number:05}-{token}{Path(file.name).suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        (stage / file.name).rename(path)
        named[path] = file
    return named
