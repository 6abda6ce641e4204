"""The producer's own record of what it wrote: the truth that the sink is counted against.

What for: written line by line while the demo runs, read by the checker after it. What it must
not know: the log service, the sink. Read next: `loghub_operator.demo.verify`.

A JSON line per log group, twice: ``"sending"`` before the call, then ``"sent"`` (the service
acknowledged it) or ``"unsure"`` (no answer came: it may be there or not). Each on disk before
the producer goes on, so what was sent is known whatever becomes of the producer.
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


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One log group: its number, and of "sending" the identities of its lines."""

    group: int
    what: What
    lines: list[Identity] = []


def identity(file: str, turn: int, number: int, text: str) -> Identity:
    """A line, with its text: one that arrived changed has not arrived."""
    return file, turn, number, zlib.crc32(text.encode())


class RecordWriter:
    """Appends; every method returns once its entry is on disk."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def sending(self, group: int, lines: Iterable[Line]) -> None:
        told = [identity(one.file, one.turn, one.number, one.text) for one in lines]
        self._write(Entry(group=group, what="sending", lines=told))

    def outcome(self, group: int, what: What) -> None:
        self._write(Entry(group=group, what=what))

    def _write(self, entry: Entry) -> None:
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """Multisets of identities: ``sent`` must be in the sink once each, ``unsure`` may be."""

    sent: Counter[Identity]
    unsure: Counter[Identity]


def read_record(path: Path) -> Truth:
    """The whole record. A group without an outcome is unsure; so is a last entry that was cut off."""
    groups: dict[int, list[Identity]] = {}
    outcomes: dict[int, What] = {}
    decoder = msgspec.json.Decoder(Entry)
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
