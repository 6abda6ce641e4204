"""Logs with texts at the limits of what casts and functions of texts accept: signs, blanks, control
characters, other digits, letters that change in number with their case, long and empty texts."""

import random
from functools import cache

import pyarrow as pa

from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub_consumer.reading.decoding import EVERYTHING, Body, Selection, decode

KEYS = ("a", "b", "c", "d")
TEXTS = (
    "", " ", "  ", "\t", "a", "A", "ab", "aB", "abc", " abc ", "\u00a0abc\u2003", "\0", "a\0b", "a\nb", "é",
    "É", "ß", "ẞ", "ﬁ", "İ", "ı", "Σ", "ΑΣ", "ΑΣ. ", "Σ\u0301Α", "ǆ", "ǅ", "Ǆ", "ŉ", "😀", "a😀b", "日本語",
    "\ufffd", "e\u0301", "Ⅷ", "x" * 300, "%", "_", "a%b", "a_b", "\\", "'", '"', "null", "NULL", "true",
)  # fmt: skip
ALPHABET = "abAB01 \t\0\u00a0éÉßσΣς😀\u0301%_"


@cache
def odd_texts(seed: int, number: int) -> tuple[str, ...]:
    """Known odd texts, and random ones that begin or end alike."""
    choose = random.Random(seed)
    made = ["".join(choose.choices(ALPHABET, k=choose.randrange(12))) for _ in range(number)]
    return (*TEXTS, *made)


def odd_logs(texts: tuple[str, ...], *, seed: int = 0, logs: int = 300) -> bytes:
    """A LogGroupList whose logs have some of these texts, each text in its first key at least once. Keys are
    missing, or occur twice."""
    choose = random.Random(seed)
    groups = []
    while logs > 0 or texts:
        size = choose.randrange(1, 60)
        first, texts = texts[:size], texts[size:]
        made = []
        for number in range(size):
            pairs = [(key, choose.choice(TEXTS)) for key in KEYS if choose.random() < 0.8]
            pairs += [(KEYS[0], first[number])] if number < len(first) else []
            made.append(Log(time=1_700_000_000 + number, contents=tuple(pairs)))
        tags = (("host", choose.choice(TEXTS)),) if choose.random() < 0.5 else ()
        topic = choose.choice(TEXTS)
        groups.append(LogGroup(logs=tuple(made), topic=topic, source=choose.choice(TEXTS), tags=tags))
        logs -= size
    return loggroup.wrap(map(loggroup.encode, groups))


def decoded(body: bytes, selection: Selection = EVERYTHING) -> pa.RecordBatch:
    return decode([Body(7, body)], shard=3, selection=selection).rows
