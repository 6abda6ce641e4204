"""What a user's file of logs is: UTF-8 text, text in another encoding, or compressed. Pure.

`TextDecoder` turns the bytes into UTF-8 text as they arrive. A file says what it is by its first bytes: UTF-8
and UTF-16 by a byte order mark, which is no part of the text, gzip by its magic number. Without any of these
it is taken for UTF-8, and bytes that are not are left as they are. What cannot be read is refused, since its
bytes would become logs that no program wrote.
"""

import codecs
import zlib
from collections.abc import Iterator
from typing import Any

AUTO = "auto"
_GZIP = b"\x1f\x8b\x08"
_ENCODINGS = {  # the longer mark first: the mark of UTF-32 begins with a mark of UTF-16
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
    codecs.BOM_UTF8: "utf-8",
}
_UNREADABLE = {
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"),
    b"BZh": ("bzip2", "bzip2 -dc"),
    b"\xfd7zXZ\x00": ("xz", "xz -dc"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}
_MAGIC = (_GZIP, *_ENCODINGS, *_UNREADABLE)
HEAD_BYTES = max(map(len, _MAGIC))
_PIECE_BYTES = 1 << 20  # gzip makes a thousand bytes of one


class UnreadableText(Exception):  # noqa: N818 - says what is so
    """The bytes are not text that can be read; the message says what they are and what to do."""


def is_text_encoding(name: str) -> bool:
    """Whether Python knows an encoding of text by this name."""
    try:
        return bool(codecs.lookup(name)._is_text_encoding)  # nothing else says so
    except (LookupError, ValueError):
        return False


def kind_of(head: bytes) -> str:
    """ "gzip", an encoding, the name of what cannot be read, or "" for plain text."""
    if head.startswith(_GZIP):
        return "gzip"
    encoding = next((name for mark, name in _ENCODINGS.items() if head.startswith(mark)), "")
    return encoding or next((name for magic, (name, _) in _UNREADABLE.items() if head.startswith(magic)), "")


def reject_unreadable(head: bytes, *, readable: tuple[str, ...]) -> None:
    """Raises `UnreadableText` unless the text begins as plain UTF-8 or as what the reader knows besides."""
    kind = kind_of(head)
    if not kind or kind == "utf-8" or kind in readable:
        return
    commands = {"gzip": "gzip -dc", **dict(_UNREADABLE.values())}
    what = f"is compressed ({kind})" if kind in commands else f"is not UTF-8 but {kind.upper()}"
    remedy = commands.get(kind, f"iconv -f {kind.upper()} -t UTF-8")
    raise UnreadableText(f"{what}; convert it first, for example with `{remedy}`")


class TextDecoder:
    """Bytes of one file in, UTF-8 out, in pieces of any length. ``encoding`` other than `AUTO`: it is text in
    that encoding, even if it begins with another mark."""

    def __init__(self, encoding: str = AUTO) -> None:
        self._head: bytes | None = b"" if encoding == AUTO else None  # None: it is known what the bytes are
        self._gzip: _Gzip | None = None
        self._decoder: codecs.IncrementalDecoder | None = None
        if encoding != AUTO:
            self._decode_from(encoding)

    def add(self, data: bytes) -> Iterator[bytes]:
        """Raises `UnreadableText`."""
        if self._head is not None:
            self._head += data
            undecided = any(magic.startswith(self._head) and magic != self._head for magic in _MAGIC)
            if undecided and len(self._head) < HEAD_BYTES:
                return
            data = self._recognize()
        yield from self._converted(data)

    def end(self) -> Iterator[bytes]:
        """What is left. Raises `UnreadableText` if something is missing at the end."""
        if self._head is not None:
            yield from self._converted(self._recognize())
        if self._gzip is not None:
            yield from self._gzip.end()
        elif self._decoder is not None:
            yield self._decoder.decode(b"", final=True).encode(errors="backslashreplace")

    def _recognize(self) -> bytes:
        """What follows a byte order mark."""
        head, self._head = self._head or b"", None
        reject_unreadable(head, readable=("gzip", *_ENCODINGS.values()))
        if head.startswith(_GZIP):
            self._gzip = _Gzip()
            return head
        mark = next((mark for mark in _ENCODINGS if head.startswith(mark)), b"")
        if mark:
            self._decode_from(_ENCODINGS[mark])
        return head.removeprefix(mark)

    def _decode_from(self, encoding: str) -> None:
        if codecs.lookup(encoding).name != "utf-8":  # bytes that are not UTF-8 are for who makes the logs
            self._decoder = codecs.getincrementaldecoder(encoding)(errors="backslashreplace")

    def _converted(self, data: bytes) -> Iterator[bytes]:
        if self._gzip is not None:
            yield from self._gzip.add(data)
        elif self._decoder is not None:
            yield self._decoder.decode(data).encode(errors="backslashreplace")
        else:
            yield data


class _Gzip:
    """The text in a file of gzip, which may have several members, each a part of the text."""

    def __init__(self) -> None:
        self._inner = TextDecoder()
        self._member: Any = None

    def add(self, data: bytes) -> Iterator[bytes]:
        try:
            while data:
                if self._member is None:
                    data = data.lstrip(b"\0")  # tapes and block devices pad
                    if not data:
                        return
                    self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
                piece = self._member.decompress(data, _PIECE_BYTES)
                data = self._member.unconsumed_tail
                if self._member.eof:
                    data, self._member = self._member.unused_data, None
                yield from self._inner.add(piece)
        except zlib.error as error:
            raise UnreadableText(f"is damaged (gzip: {error}); what is before that is read") from None

    def end(self) -> Iterator[bytes]:
        yield from self._inner.end()
        if self._member is not None:
            raise UnreadableText("ends in the middle of its compressed data (gzip); what is there is read")
