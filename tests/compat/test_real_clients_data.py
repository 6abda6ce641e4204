"""The vendor's Java, Go and Python consumers on the service, unmodified: which logs they get, and when.

`test_real_clients` says which of them run in which test.
"""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from loghub.wire import cursor
from tests.compat.consumers import CONSUMED_GUARD_S, LANGUAGES, Consumer
from tests.compat.place import GUARD_S, Place
from tests.compat.representatives import together
from tests.compat.sdk import GROUP, LOGSTORE
from tests.support import wait_until

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]


def check_order_of_each_shard(place: Place) -> None:
    """One producer wrote, so the numbers of a shard grow."""
    shards: dict[int, list[int]] = {}
    for shard, numbers in place.consumers.in_order:
        shards.setdefault(shard, []).extend(numbers)
    assert all(numbers == sorted(numbers) for numbers in shards.values())


def split(place: Place, shard: int) -> dict[int, tuple[int, ...]]:
    """The children, with their parents."""
    return {one.shard: (shard,) for one in place.client.split_shard(LOGSTORE, shard) if one.shard != shard}


def merge(place: Place, parents: Collection[int]) -> dict[int, tuple[int, ...]]:
    """The child of two neighbours, with its parents."""
    shards = place.client.merge_shards(LOGSTORE, min(parents))
    return {one.shard: tuple(parents) for one in shards if one.shard not in parents}


@pytest.mark.parametrize(
    ("languages", "in_order"),
    [
        pytest.param(("java", "python"), True, id="java-python-in order"),
        pytest.param(("go", "go"), False, id="go-out of order"),
        pytest.param(("go", "go"), True, id="go-in order", marks=pytest.mark.deep),
        pytest.param(("java", "java"), False, id="java-out of order", marks=pytest.mark.deep),
        pytest.param(("python", "python"), False, id="python-out of order", marks=pytest.mark.deep),
    ],
)
def test_split_and_merge_under_load(place: Place, languages: tuple[str, str], in_order: bool) -> None:
    """A producer writes all the time. Shard 0 is split and its children are merged while no batch ends,
    shard 1 and its children while they are read. In an ordered group the processors see every log of a
    parent before the first of its children."""
    place.create(shards=2, groups=40)
    consumers = [
        place.consumers.start(language, name, in_order=in_order)
        for language, name in zip(languages, "AB", strict=True)
    ]
    place.wait_held(1, 1)
    for consumer in consumers:
        consumer.hold()
    place.write(20)
    with place.writing() as written_more:
        children = split(place, 0)
        written_more()
        parents = children | merge(place, children.keys())
        written_more()
        for consumer in consumers:
            consumer.let_go()
        place.consumers.wait_for(set(range(place.written)))
        children = split(place, 1)
        wait_until(lambda: children.keys() <= place.consumers.shards(), "the children", guard_s=GUARD_S)
        parents |= children | merge(place, children.keys())
        written_more()
    place.write(20)
    written = set(range(place.written))
    place.consumers.wait_for(written)
    over = {shard for before in parents.values() for shard in before}
    wait_until(
        lambda: {shard for shard, state in place.states().items() if state == "over"} == over,
        "the parents to be over",
        guard_s=GUARD_S,
    )
    place.wait_held(1, 1)  # the merged ones; what is over does not count
    place.wait_consumed_once(written)
    check_order_of_each_shard(place)
    shards = [shard for shard, _ in place.consumers.in_order]
    assert set(shards) == {0, 1, *parents}
    if in_order:
        for child, before in parents.items():
            later = set(shards[shards.index(child) :])
            assert not later & set(before), f"shard {child} began before {before} ended"


@together(LANGUAGES, count=1)
def test_a_returned_cursor_rolls_back_and_a_forced_checkpoint_resets(
    place: Place, languages: Sequence[str]
) -> None:
    place.create(shards=1, groups=20)
    before = place.write(10)
    middle = place.client.get_cursor(LOGSTORE, 0, "end")
    after = place.write(10)
    last = max(after)
    begin, end = (place.client.get_cursor(LOGSTORE, 0, where) for where in ("begin", "end"))

    def started(language: str, **more: Any) -> Consumer:
        return place.consumers.start(language, "A", group=f"of-{language}", **more)

    consumers = {language: started(language, roll_back=(last, middle)) for language in languages}
    for language, consumer in consumers.items():
        wait_until(
            lambda consumer=consumer: consumer.seen[last] == 2, "the last log again", guard_s=CONSUMED_GUARD_S
        )
        assert consumer.seen == Counter(before) + Counter(dict.fromkeys(after, 2))
        wait_until(
            lambda group=f"of-{language}": saved(place, group) == cursor.decode(end),
            "the checkpoint",
            guard_s=GUARD_S,
        )
        consumer.stop()
        place.client.update_checkpoint(
            LOGSTORE, f"of-{language}", shard=0, cursor=begin, consumer="", force=True
        )
    consumers = {language: started(language) for language in languages}
    for again in consumers.values():
        wait_until(lambda again=again: again.has(before | after), "all logs again", guard_s=CONSUMED_GUARD_S)
        assert again.seen == Counter(before | after)


def saved(place: Place, group: str, shard: int = 0) -> int | None:
    (checkpoint,) = place.client.get_checkpoints(LOGSTORE, group, shard)
    return cursor.decode(checkpoint.cursor) if checkpoint.cursor else None


@together(LANGUAGES, count=3)
def test_a_new_group_begins_at_the_begin_the_end_or_a_time(place: Place, languages: Sequence[str]) -> None:
    place.create(shards=1, groups=20)
    early = place.write(10)
    second = int(time.time()) + 1
    wait_until(lambda: time.time() >= second + 0.1, "the next second")
    late = place.write(10)
    consumers = {
        start: place.consumers.start(language, "A", group=f"from-{start}", start=start)
        for start, language in zip(("begin", "end", str(second)), languages, strict=True)
    }
    for start in consumers:
        place.wait_held(1, group=f"from-{start}")
    wait_until(lambda: consumers["begin"].has(early | late), "everything", guard_s=CONSUMED_GUARD_S)
    wait_until(lambda: consumers[str(second)].has(late), "the late ones", guard_s=CONSUMED_GUARD_S)
    assert consumers["begin"].seen == Counter(early | late)
    assert consumers[str(second)].seen == Counter(late)
    # A library looks up its position some time after the shard became its own.
    probes: set[int] = set()

    def has_probe() -> bool:
        probes.update(place.write(1, logs=1))
        return bool(consumers["end"].seen.keys() & probes)

    wait_until(has_probe, "what was written after the start", guard_s=GUARD_S)
    assert not consumers["end"].seen.keys() & (early | late)


@together(LANGUAGES, count=2)
def test_the_service_is_killed_and_starts_again(place: Place, languages: Sequence[str]) -> None:
    # Java 0.6.41 may stop to read after an outage that is longer than the timeout (docs/compatibility.md 4),
    # and a service may take long to start on a busy machine.
    place.consumers.timeout_s = 300
    place.create(shards=6, groups=100)
    for number, language in enumerate(languages):
        place.consumers.start(language, f"c-{number}")
    shares = [6 // len(languages)] * len(languages)
    place.wait_held(*shares)
    written = place.write(20)
    place.consumers.wait_for(written)
    for _ in range(2):
        written |= place.write(20)
        place.service.kill9()
        place.service.start()
        written |= place.write(20)
        place.consumers.wait_for(written)
    place.wait_held(*shares)
    print(
        f"{languages}: {len(written)} logs, {place.repeated()} consumed again after two kills of the service"
    )


@pytest.mark.parametrize("languages", [pytest.param(("go", "python"), id="go-python")])
def test_requests_are_signed_with_version_4(place: Place, languages: tuple[str, ...]) -> None:
    place.create(shards=2, groups=10)
    consumers = [place.consumers.start(language, language, sign_v4=True) for language in languages]
    place.wait_held(1, 1)
    place.wait_consumed_once(place.write(10))
    for consumer in consumers:
        consumer.stop()
    assert all(saved(place, GROUP, shard) is not None for shard in (0, 1))
