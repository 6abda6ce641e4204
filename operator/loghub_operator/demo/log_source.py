"""The lines that the demo writes: from a file of the user, or from a generated web access log.

Each source is endless. The identity of a line is (file, pass, line number); both numbers count from 1. Bytes
that are not UTF-8 are written as ``\\xNN``, so that no part of a line is lost and a person can read it.
"""

import random
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from loghub_operator.local.text_input import HEAD_BYTES, UnreadableText, reject_unreadable

MAX_LINE_BYTES = 256 << 10  # the rest of a longer line is cut off, and the demo reports it
GENERATED = "access.log"


class BadLogsError(Exception):
    """The user's file cannot be used; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
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


def of_file(path: Path) -> Iterator[Line]:
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


def _line(file: str, turn: int, number: int, raw: bytes, *, cut: bool) -> Line:
    body = raw.removesuffix(b"\n").removesuffix(b"\r")
    text = body.decode("utf-8", errors="backslashreplace")
    replaced = text.encode() != body
    return Line(file=file, turn=turn, number=number, text=text, replaced=replaced, cut=cut)


_PATHS = ("/", "/index.html", "/login", "/cart", "/search?q=shoes", "/api/items/{n}", "/static/app.js")
_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15",
    "curl/8.5.0",
    "Googlebot/2.1 (+http://www.google.com/bot.html)",
)
_STATUSES = (200, 200, 200, 200, 200, 200, 304, 302, 404, 404, 500, 503)
_METHODS = ("GET", "GET", "GET", "GET", "POST", "HEAD")


def generated(seed: int, unix_s: Callable[[], float]) -> Iterator[Line]:
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
        yield Line(file=GENERATED, turn=1, number=number, text=text)
