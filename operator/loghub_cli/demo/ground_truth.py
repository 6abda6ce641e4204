r"""The lines that the demo writes, and the record of what was written: the ground truth against which the
sink is counted.

Lines come from a file of the user or from a generated web access log; each source is endless. The identity of
a line is (file, pass, line number); both numbers count from 1. Bytes that are not UTF-8 are written as
``\xNN``, so that no part of a line is lost and a person can read it.

The producer writes the record line by line while the demo runs, and `loghub_cli.demo.verify` reads it
afterwards. Each log group has two JSON lines: ``"sending"`` before the call, then ``"sent"`` (the service
acknowledged it) or ``"unsure"`` (no answer came, so the group may have arrived or not). Each line is on disk
before the producer continues, so what was sent is known even if the producer is killed.
"""

import os
import random
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

import msgspec

from loghub_cli.up.text_input import HEAD_BYTES, UnreadableText, reject_unreadable

MAX_LINE_BYTES = 256 << 10  # the rest of a longer line is cut off, and the demo reports it
GENERATED = "access.log"


class BadLogsError(Exception):
    """The user's file cannot be used; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """One line; with ``replaced`` or ``cut``, its ``text`` differs from the bytes in the file."""

    file: str
    turn: int  # the pass over the file
    number: int
    text: str
    replaced: bool = False
    cut: bool = False


def check_file(path: Path) -> None:
    """Raises `BadLogsError` if the file is missing, unreadable, empty, or no text in UTF-8."""
    try:
        if not path.is_file():
            raise BadLogsError(f"{path} is not a file" if path.exists() else f"there is no file {path}")
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if not head:
            raise BadLogsError(f"{path} is empty")
        reject_unreadable(head, readable=())
    except UnreadableText as error:
        raise BadLogsError(f"{path} {error}") from None
    except OSError as error:
        raise BadLogsError(f"{path}: {error.strerror}") from None


def of_file(path: Path) -> Iterator[SourceLine]:
    """The lines of a file, again and again, without a byte order mark. An empty line is a line. Raises
    `BadLogsError` if the file becomes empty."""
    turn = 0
    while True:
        turn += 1
        with path.open("rb") as file:
            number = 0
            if file.read(len(BOM_UTF8)) != BOM_UTF8:
                file.seek(0)
            while raw := file.readline(MAX_LINE_BYTES):
                number += 1
                cut = len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n")
                if cut:
                    _skip_line(file)
                yield _line(path.name, turn, number, raw, cut=cut)
        if number == 0:
            raise BadLogsError(f"{path} has become empty")


def _skip_line(file: IO[bytes]) -> None:
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _line(file: str, turn: int, number: int, raw: bytes, *, cut: bool) -> SourceLine:
    body = raw.removesuffix(b"\n").removesuffix(b"\r")
    text = body.decode("utf-8", errors="backslashreplace")
    replaced = text.encode() != body
    return SourceLine(file=file, turn=turn, number=number, text=text, replaced=replaced, cut=cut)


_PATHS = ("/", "/index.html", "/login", "/cart", "/search?q=shoes", "/api/items/{n}", "/static/app.js")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15",
    "curl/8.5.0",
    "Googlebot/2.1 (+http://www.google.com/bot.html)",
)
# Half of the requests succeed, so that a table by status has several rows of different sizes.
_STATUSES = (200, 200, 200, 200, 200, 200, 304, 302, 404, 404, 500, 503)
_METHODS = ("GET", "GET", "GET", "GET", "POST", "HEAD")


def generated(seed: int, unix_s: Callable[[], float]) -> Iterator[SourceLine]:
    """An access log in the combined format; ``unix_s()`` is the time of a line. The same seed gives the same
    requests."""
    dice = random.Random(seed)  # noqa: S311 - a sample log
    clients = [f"{dice.randint(1, 223)}.{dice.randint(0, 255)}.{dice.randint(0, 255)}.7" for _ in range(40)]
    number = 0
    while True:
        number += 1
        when = datetime.fromtimestamp(unix_s(), UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        method, path = dice.choice(_METHODS), dice.choice(_PATHS).format(n=dice.randint(1, 500))
        status = dice.choice(_STATUSES)
        size = "-" if status == 304 else str(dice.randint(120, 40_000))
        client = dice.choice(clients)
        text = (
            f'{client} - - [{when}] "{method} {path} HTTP/1.1" {status} {size} "-" "{dice.choice(_AGENTS)}"'
        )
        yield SourceLine(file=GENERATED, turn=1, number=number, text=text)


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

    def sending(self, group: int, lines: Iterable[SourceLine]) -> None:
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
    """Multisets of identities: each line in ``sent`` must be in the sink once, and each line in ``unsure``
    may be."""

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
