"""Each pair of values of the consumer's settings, events and ways to refuse a log, in virtual time.

Of the logs some are bad, two of them equal ones of a log group. Whatever else happens: every good log is
processed, every bad one is in the dead letter once, or counted as skipped, or comes again until it is good,
nothing is settled in an outage, the checkpoint never moves back, and memory stays within its bound.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.loghub_consumer.covering import Pair, Row, any_row, covering_rows, pairs_in, pairs_of
from tests.loghub_consumer.pair_story import Story
from tests.loghub_consumer.virtual import world
from tests.suite.seed import of_run

FACTORS = {
    "event": ("nothing else", "outage", "slow", "target away", "move", "kill", "processes"),
    "policy": ("Retry", "Skip", "DeadLetter", "Stop"),
    "says": ("raise", "nack", "reject", "forget"),  # the processor, of a bad log
    "target": ("none", "logstore", "folder"),
    "acknowledge": ("batch", "log"),
    "acks": ("logs", "log groups"),  # by log: once each log of it that came was good
    "saves": ("each time", "later"),  # later: what was processed is in the processor's memory until then
    "waits": ("no", "yes"),  # in a retry logstore
    "fan_out": ("no", "yes"),  # says nack: since the log has no key
    "ack_timeout": ("no", "yes"),
    "processor": ("sync", "async"),
    "source": ("one logstore", "several"),
    "place": ("program", "processes", "worker"),  # the second: processes of a program
}


def never(name: str, values: str, other: str, others: str) -> Iterator[Pair]:
    """The pairs of these values; several are divided by a bar."""
    for value in values.split("|"):
        yield from (frozenset({(name, value), (other, one)}) for one in others.split("|"))


EXCLUDED = frozenset[Pair](
    (
        *never("policy", "Retry|Skip|Stop", "target", "logstore|folder"),
        *never("policy", "DeadLetter", "target", "none"),
        *never("policy", "Retry|Stop", "waits", "yes"),
        *never("source", "several", "waits", "yes"),
        *never("source", "several", "place", "worker|processes"),
        *never("acknowledge", "batch", "fan_out", "yes"),
        *never("acknowledge", "batch", "ack_timeout", "yes"),
        *never("fan_out", "yes", "ack_timeout", "yes"),
        *never("fan_out", "yes", "says", "reject|forget"),
        *never("says", "forget", "ack_timeout", "no"),
        *never("event", "target away", "target", "none"),
        *never("event", "processes", "place", "program"),  # they end, and shards move from one to another
        *never("acknowledge", "log", "saves", "later"),
    )
)
ROWS = covering_rows(FACTORS, EXCLUDED)


def test_the_rows_have_each_pair_that_can_be() -> None:
    """What is in no row follows from what is excluded, by at most one more setting."""
    covered = {pair for row in ROWS for pair in pairs_in(row)}
    assert not covered & EXCLUDED
    missing = {tuple(sorted(pair)) for pair in pairs_of(FACTORS)} - {tuple(sorted(pair)) for pair in covered}
    assert missing == IMPOSSIBLE


IMPOSSIBLE = {
    tuple(sorted(pair))
    for pair in (
        *EXCLUDED,
        *never("says", "forget", "acknowledge", "batch"),
        *never("says", "forget", "fan_out", "yes"),
        *never("event", "target away", "policy", "Retry|Skip|Stop"),
        *never("event", "processes", "source", "several"),
        *never("saves", "later", "ack_timeout", "yes"),
        *never("saves", "later", "fan_out", "yes"),
        *never("saves", "later", "says", "forget"),
    )
}


def tell(row: Row, folder: Path, *, seed: int) -> None:
    with world(seed) as virtual:
        story = Story(virtual, row, folder)
        story.run()
        story.check()
        for program in story.programs:
            program.end()
        assert not virtual.moved_back()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: ",".join(row.values()))
def test_every_good_log_is_processed_and_every_bad_one_settled_once(row: Row, tmp_path: Path) -> None:
    tell(row, tmp_path, seed=ROWS.index(row))


@pytest.mark.deep
@pytest.mark.parametrize("begin", range(0, 1000, 100))
def test_all_settings_by_chance(begin: int, tmp_path: Path) -> None:
    for seed in range(begin, begin + 100):
        dice = Random(of_run() * 1_000_000 + seed)
        row = any_row(FACTORS, EXCLUDED, dice)
        print(f"seed {of_run()}/{seed}: {row}")
        tell(row, tmp_path / str(seed), seed=dice.randrange(1 << 32))
