"""Log groups for the tests: made by Hypothesis, and from real log lines."""

import os
from pathlib import Path

from hypothesis import strategies as st

from loghub.wire.loggroup import Log, LogGroup

ROOT = Path(__file__).parents[3]
LINES = 200

texts = st.text(st.characters(codec="utf-8"), max_size=30)
# Around the lengths at which a length takes one byte more.
long_values = st.sampled_from([0, 1, 110, 120, 127, 128, 129, 200, 16_383, 16_384, 20_000]).map(
    lambda size: b"\xff" * size
)
values = st.one_of(st.binary(max_size=40), long_values)
pairs = st.tuples(texts, values)
logs = st.builds(
    Log,
    time=st.integers(0, 2**32 - 1),
    contents=st.lists(pairs, max_size=4).map(tuple),
    time_ns=st.none() | st.integers(0, 999_999_999),
)
groups = st.builds(
    LogGroup,
    logs=st.lists(logs, max_size=4).map(tuple),
    topic=texts,
    source=texts,
    tags=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    category=texts,
    machine_uuid=texts,
)


def real_lines() -> list[bytes]:
    """Lines of real logs where the folder is there, else lines made up, some of them not UTF-8."""
    folder = ROOT / os.environ.get("LOGHUB_TEST_LOGS", "../shared/data/logs")
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    lines: list[bytes] = []
    for path in files:
        with path.open("rb") as file:
            lines += file.read(64 << 10).splitlines()[:LINES]
    if lines:
        return lines
    return [f"10.0.0.{n} GET /{'x' * n} 200".encode() + bytes([n]) for n in range(LINES)]
