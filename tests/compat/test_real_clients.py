"""The vendor's Java, Go and Python consumers on the service, unmodified: who has which shard.

Each test consumes 5,000 logs, with one library or with all at the same time; in `make check-deep` each
library has a run of its own, and there is one over a million logs. None may be lost, and none is consumed
twice where nothing crashes; with ``-s`` the other tests print how often that happened.
"""

import time
from collections import Counter
from collections.abc import Sequence

import pytest

from loghub.client.port import GroupInfo
from loghub.wire.errors import LogHubError
from tests.compat.consumers import CONSUMED_GUARD_S, HEARTBEAT_S, LANGUAGES
from tests.compat.place import GUARD_S, MORE_GROUPS, Place
from tests.compat.representatives import representative, together
from tests.compat.sdk import GROUP, LOGSTORE
from tests.compat.spark_worker import SPARK_GUARD_S, SPARK_TIMEOUT_S, SparkWorker
from tests.support import wait_until

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]


@representative("language", LANGUAGES, "go")
def test_ten_shards_move_between_consumers_that_come_and_go(place: Place, language: str) -> None:
    """3, 3 and 4 shards; one is killed and comes back; two more join, and each has two."""
    place.create(shards=10, groups=160)
    start = place.consumers.start
    a, *_ = (start(language, name) for name in "ABC")
    place.wait_held(3, 3, 4, names="ABC")
    written = place.write(40)
    place.wait_consumed_once(written)
    written |= place.write(20)
    a.kill()
    written |= place.write(20)
    place.wait_held(5, 5, names="BC")
    written |= place.write(20)
    start(language, "A")
    place.wait_held(3, 3, 4, names="ABC")
    written |= place.write(20)
    for name in "DE":
        start(language, name)
    place.wait_held(2, 2, 2, 2, 2, names="ABCDE")
    written |= place.write(40)
    place.consumers.wait_for(written)
    print(f"{language}: {len(written)} logs, {place.repeated()} consumed again after the kill")


@representative("language", LANGUAGES, "java")
def test_a_shard_comes_back_while_its_holder_shuts_it_down(place: Place, language: str) -> None:
    """A works on a long batch when B joins, and B dies before A has given anything up. The Java library never
    reads a shard again that is given back to it before it has ended it."""
    place.create(shards=4, groups=80)
    a = place.consumers.start(language, "A")
    place.wait_held(4)
    a.hold()
    written = place.write(40)
    b = place.consumers.start(language, "B")
    wait_until(lambda: list(place.states().values()).count("transfer") == 2, "two shards on their way")
    place.wait_for_a_heartbeat("A")
    b.kill()
    wait_until(lambda: "B" not in place.names(), "B has timed out", guard_s=GUARD_S)
    place.wait_for_a_heartbeat("A")  # whose answer could already list the shards again
    place.wait_for_a_heartbeat("A")
    a.let_go()
    place.wait_held(4)
    written |= place.write(40)
    place.wait_consumed_once(written)  # B, which was killed, had got nothing yet


@pytest.mark.parametrize(
    "with_spark",
    [False, pytest.param(True, marks=[pytest.mark.spark, pytest.mark.deep(minutes=10)])],
    ids=["libraries", "with Spark"],
)
@pytest.mark.timeout(1800)
def test_all_libraries_and_ours_share_one_group(
    place: Place, request: pytest.FixtureRequest, with_spark: bool
) -> None:
    """Ten shards for the three libraries and ours, in `make check-deep` for our worker on Spark too. Two are
    killed at a time, and come back, in `make check-deep` the others too, but for the worker: its start takes
    the CPU time of all others together, and tests/loghub_worker/test_worker_kills.py has it."""
    place.create(shards=10, groups=120)
    languages = {"go": "G", "java": "J", "python": "P", "ours": "O"}
    if with_spark:
        place.consumers.timeout_s = SPARK_TIMEOUT_S
    running = {language: place.consumers.start(language, name) for language, name in languages.items()}
    place.wait_held(2, 2, 3, 3)
    if with_spark:
        spark_worker: SparkWorker = request.getfixturevalue("spark_worker")
        spark_worker.start()
        place.wait_held(2, 2, 2, 2, 2, guard_s=SPARK_GUARD_S)
    all_of_them, without_two = ((2, 2, 2, 2, 2), (3, 3, 4)) if with_spark else ((2, 2, 3, 3), (5, 5))
    written = place.write(40)
    place.wait_consumed_once(written)
    for pair in (("go", "python"), ("java", "ours"))[: 2 if with_spark else 1]:
        written |= place.write(30)
        for language in pair:
            running[language].kill()
        written |= place.write(20)
        place.wait_held(*without_two)
        for language in pair:
            running[language] = place.consumers.start(language, languages[language])
        place.wait_held(*all_of_them)
    written |= place.write(10)
    if with_spark:
        assert spark_worker.delivered()
        spark_worker.kill()
        written |= place.write(10)
        place.wait_held(2, 2, 3, 3)
    written |= place.write(20)
    place.consumers.wait_for(written)
    if with_spark:
        assert max(spark_worker.delivered().values()) == 1  # its sink delivers exactly once
    print(f"all: {len(written)} logs, {place.repeated()} consumed again after each was killed")


@representative("language", LANGUAGES, "python")
def test_the_library_creates_its_group_and_meets_the_limit(place: Place, language: str) -> None:
    """A logstore has at most 30 groups; the 31st consumer does not start, and harms no other."""
    place.create(shards=1, groups=20)
    for number in range(29):
        place.client.create_group(LOGSTORE, GroupInfo(name=f"g-{number}", timeout_s=60, order=False))
    consumer = place.consumers.start("go", "A", in_order=True)
    place.wait_held(1)
    (group,) = (one for one in place.client.list_groups(LOGSTORE) if one.name == GROUP)
    assert (group.timeout_s, group.order) == (6, True)
    refused = place.consumers.start(language, "B", group="one-too-many")
    wait_until(
        lambda: "ConsumerGroupQuotaExceed" in refused.log or refused.process.poll() is not None,
        "an error",
        guard_s=GUARD_S,
    )
    refused.kill()
    place.wait_consumed_once(place.write(20))
    assert consumer.process.poll() is None
    with pytest.raises(LogHubError, match="ConsumerGroupNotExist"):
        place.client.get_checkpoints(LOGSTORE, "one-too-many")


@together(LANGUAGES, count=1)
def test_of_two_groups_one_is_deleted_and_made_again(place: Place, languages: Sequence[str]) -> None:
    """The consumers of the other go on. Those of the deleted one join again once it is there."""
    place.create(shards=3, groups=30)
    other = place.consumers.start(languages[0], "A", group="other")
    lost = [place.consumers.start(language, f"B{number}") for number, language in enumerate(languages)]

    def read_by_the_lost() -> set[int]:
        return {number for one in lost for number in one.seen}

    place.wait_held(*(3 // len(lost) for _ in lost))
    written = place.write(10)
    wait_until(
        lambda: other.has(written) and written <= read_by_the_lost(), "both groups", guard_s=CONSUMED_GUARD_S
    )
    place.client.delete_group(LOGSTORE, GROUP)
    more = place.write(10)
    wait_until(lambda: other.has(written | more), "the other group", guard_s=CONSUMED_GUARD_S)
    assert other.seen == Counter(written | more)
    place.client.create_group(LOGSTORE, GroupInfo(name=GROUP, timeout_s=6, order=False))
    place.wait_held(*(3 // len(lost) for _ in lost))
    again = place.write(10)
    wait_until(
        lambda: written | more | again <= read_by_the_lost(),
        "the group made again",
        guard_s=CONSUMED_GUARD_S,
    )


@representative("language", LANGUAGES, "go")
def test_settings_of_the_group_change_while_it_is_consumed(place: Place, language: str) -> None:
    """Once the group is ordered, the children of a split wait; once it is not, a consumer reads them although
    the other one has not read their parent. A consumer that is killed keeps its shards beyond the timeout
    with which the library made the group, and loses them after the next one."""
    place.create(shards=2, groups=50 + MORE_GROUPS)
    consumers = {name: place.consumers.start(language, name) for name in "AB"}
    place.wait_held(1, 1)
    written = place.write(20)
    place.wait_consumed_once(written)
    slow = place.holders()[0]
    fast = min({"A", "B"} - {slow})
    consumers[slow].hold()
    place.change_group(timeout_s=30, order=True)
    written |= place.write(10)
    place.client.split_shard(LOGSTORE, 0)
    written |= place.write(MORE_GROUPS)
    for name in "AB":
        place.wait_for_a_heartbeat(name)
        place.wait_for_a_heartbeat(name)
    assert place.states() == {0: "already_alloc", 1: "already_alloc", 2: "wait", 3: "wait"}
    assert place.consumers.shards() == {0, 1}
    place.change_group(timeout_s=30, order=False)
    wait_until(lambda: place.consumers.shards() & {2, 3}, "a child before its parent", guard_s=GUARD_S)
    assert place.states()[0] == "already_alloc"
    consumers[slow].let_go()
    written |= place.write(10)
    place.wait_consumed_once(written)
    consumers[slow].kill()
    wait_until(
        lambda: place.silent_s(slow) > place.consumers.timeout_s + 1, "the first timeout", guard_s=GUARD_S
    )
    assert slow in place.holders().values()
    place.change_group(timeout_s=place.consumers.timeout_s + 3, order=False)
    wait_until(lambda: set(place.holders().values()) == {fast}, "the new timeout", guard_s=GUARD_S)
    written |= place.write(10)
    place.consumers.wait_for(written)


@pytest.mark.deep
@pytest.mark.parametrize("language", LANGUAGES)
def test_after_an_outage_longer_than_the_timeout_java_reads_only_once_it_is_started_again(
    place: Place, language: str
) -> None:
    """The consumer has a batch of each shard until the service is back (docs/compatibility.md 4)."""
    place.create(shards=2, groups=60)
    consumer = place.consumers.start(language, "A")
    place.wait_held(2)
    written = place.write(20)
    place.wait_consumed_once(written)
    consumer.hold()
    written |= place.write(20)
    for _ in range(3):
        place.wait_for_a_heartbeat("A")  # meanwhile it pulls
    place.service.kill9()
    back_s = time.monotonic() + place.consumers.timeout_s + 4 * HEARTBEAT_S
    wait_until(lambda: time.monotonic() > back_s, "the end of the outage")
    place.service.start()
    place.wait_for_a_heartbeat("A")
    consumer.let_go()
    later = place.write(20)
    if language == "java":
        for _ in range(10):
            place.wait_for_a_heartbeat("A")
        assert place.held() == {"A": 2}
        assert not consumer.seen.keys() & later
        consumer.kill()
        place.consumers.start(language, "A")
    place.consumers.wait_for(written | later)
