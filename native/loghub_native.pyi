def records_of(group: bytes, raw: bool, most: int) -> tuple[bytes, int, int, int] | None:
    """The records of the first ``most`` logs of a group one after the other, their number, and the times of
    the first and of the youngest in ms; None for a group that only the Python implementation can judge."""

def count_logs(group: bytes) -> int | None:
    """The number of logs in a valid group; None for one that only the Python implementation can judge."""

class Buffer:
    """Memory that never changes, read through the buffer protocol."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

TextColumn = tuple[Buffer, Buffer]  # the ends of the texts and the texts, as in Arrow
PairColumn = tuple[Buffer, TextColumn, TextColumn]  # the ends of the lists of pairs, keys, values

class DecodedLists:
    """The columns of some LogGroupLists, in Arrow's layout; `native/src/lists.rs` describes each."""

    groups: list[int]
    first_rows: Buffer
    topics: TextColumn
    sources: TextColumn
    tags: PairColumn
    group_of_log: Buffer
    times_us: Buffer
    time_ns: tuple[Buffer, int, Buffer]
    contents: PairColumn | None
    keys: list[tuple[Buffer, int, TextColumn]]

def decode_lists(bodies: list[bytes], keys: list[str], contents: bool) -> DecodedLists | None:
    """The columns of these lists, of these keys, and of the contents if wanted; None for lists that only the
    Python implementation can judge."""
