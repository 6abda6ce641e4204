"""The producer's own record of what it wrote: the ground truth against which the sink is counted.

The producer writes the record line by line while the demo runs, and `loghub_operator.demo.verify` reads it
afterwards. Each log group has two JSON lines: ``"sending"`` before the call, then ``"sent"`` (the service
acknowledged it) or ``"unsure"`` (no answer came, so the group may have arrived or not). Each line is on disk
before the producer continues, so what was sent is known whatever happens to the producer.
"""

import os
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import msgspec

from loghub_operator.demo.log_source import Line

What = Literal["sending", "sent", "unsure"]
Identity = tuple[str, int, int, int]  # file, pass, number, CRC-32 of the text


class RecordEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One log group: its number and, for "sending", the identities of its lines."""

    group: int
    what: What
    lines: list[Identity] = []


def identity(file: str, turn: int, number: int, text: str) -> Identity:
    """The identity of a line, which includes its text: a line that arrived changed has not arrived."""
    return file, turn, number, zlib.crc32(text.encode())


class RecordWriter:
    """Appends entries; every method returns once its entry is on disk."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def sending(self, group: int, lines: Iterable[Line]) -> None:
        identities = [identity(line.file, line.turn, line.number, line.text) for line in lines]
        self._write(RecordEntry(group=group, what="sending", lines=identities))

    def outcome(self, group: int, what: What) -> None:
        self._write(RecordEntry(group=group, what=what))

    def _write(self, entry: RecordEntry) -> None:
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Multisets of identities: the lines in ``sent`` must be in the sink once each, those in ``unsure`` may
    be."""

    sent: Counter[Identity]
    unsure: Counter[Identity]


def read_record(path: Path) -> Truth:
    """The whole record. A group without an outcome is unsure; a last entry that was cut off is ignored."""
    groups: dict[int, list[Identity]] = {}
    outcomes: dict[int, What] = {}
    decoder = msgspec.json.Decoder(RecordEntry)
    with path.open("rb") as file:
        for raw in file:
            if not raw.endswith(b"\n"):
                break
            entry = decoder.decode(raw)
            if entry.what == "sending":
                groups[entry.group] = entry.lines
            else:
                outcomes[entry.group] = entry.what
    sent: Counter[Identity] = Counter()
    unsure: Counter[Identity] = Counter()
    for group, lines in groups.items():
        (sent if outcomes.get(group) == "sent" else unsure).update(lines)
    return Truth(sent=sent, unsure=unsure)
