"""Whether consumers read what producers sent: each record, how often, and in which order.

A record is a topic, a partition and an offset, with its key and value. The values of a test are unique.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

Record = tuple[str, int, int, str | None, str | None]  # topic, partition, offset, key, value


def faults(
    sent: Sequence[Sequence[str]],
    read: Sequence[Sequence[Record]],
    *,
    crashed: bool,
    in_sent_order: bool = True,
) -> Iterator[str]:
    """What is wrong with the records that the members of a group printed.

    ``sent`` has the values of each producer in its order, ``read`` the records of each member in its order.
    If a process has ``crashed``, records may be read again. Nothing may be stored again, since every
    producer is idempotent. ``in_sent_order`` is false where records of several partitions of the producer
    can end up in one partition.
    """
    yield from _missing_or_unknown({value for values in sent for value in values}, read)
    values: dict[tuple[str, int, int], str | None] = {}
    for topic, partition, offset, _, value in (one for records in read for one in records):
        if values.setdefault((topic, partition, offset), value) != value:
            yield f"offset {offset} of {topic}/{partition} has {value} and {values[topic, partition, offset]}"
    stored = Counter(values.values())
    yield from (f"{value} is stored {count} times" for value, count in stored.items() if count > 1)
    if not crashed:
        times = Counter(value for records in read for *_, value in records)
        yield from (f"{value} was read {count} times" for value, count in times.items() if count > 1)
    for number, records in enumerate(read):
        yield from _out_of_order(f"member {number}", records)
    if in_sent_order:
        yield from _not_as_sent(
            sent, sorted((place[0], place[1], place[2], values[place]) for place in values)
        )


def _missing_or_unknown(sent: set[str], read: Sequence[Sequence[Record]]) -> Iterator[str]:
    found = {value for records in read for *_, value in records}
    yield from (f"{value} was not read" for value in sorted(sent - found))
    yield from (f"{value} was not sent" for value in sorted(map(str, found - sent)))


def _out_of_order(who: str, records: Sequence[Record]) -> Iterator[str]:
    """A member may go back to what it has read before, and beyond that only forward."""
    last: dict[tuple[str, int], int] = {}
    seen: set[tuple[str, int, int]] = set()
    for topic, partition, offset, *_ in records:
        if (topic, partition, offset) in seen:
            continue
        seen.add((topic, partition, offset))
        if offset < last.get((topic, partition), -1):
            yield f"{who} read offset {offset} of {topic}/{partition} after {last[topic, partition]}"
        last[topic, partition] = offset


def _not_as_sent(
    sent: Sequence[Sequence[str]], stored: Sequence[tuple[str, int, int, str | None]]
) -> Iterator[str]:
    """In each partition the values of a producer have its order."""
    place = {value: (number, at) for number, values in enumerate(sent) for at, value in enumerate(values)}
    last: dict[tuple[str, int, int], int] = {}
    for topic, partition, _, value in stored:
        if value is None or value not in place:
            continue
        number, at = place[value]
        before = last.setdefault((topic, partition, number), at)
        if at < before:
            yield f"{value} is stored in {topic}/{partition} after {sent[number][before]}, sent later"
        last[topic, partition, number] = at
