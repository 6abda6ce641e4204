"""The parts of the suite: which tests each has, and what it may cost on two cores.

Three tiers use them (docs/testing.md 6): `make check` is the part ``fast``, `make test` adds the parts
``stories``, in the same pytest, and ``cluster``; `make check-deep` has the rest. A part that takes half as
long again as its budget is named in the last line of a run; machines differ, so it does not fail.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tests.cluster import ip_family

# Tests wait for processes, threads and disks; long searches compute. The stories wait for half of their time,
# some for minutes: with two processes for a core, a sixth of its time was left.
CORES = os.cpu_count() or 1
PROCESSES = min(8, 2 * CORES)
STORY_PROCESSES = min(12, 3 * CORES)
DEEP_PROCESSES = min(8, CORES + 1)
FORKS = ("-p", "tests.suite.forks")
# What takes a minute or more, or half of one late in the order of names: none of it should be left to one
# process at the end.
LONGEST = (
    "tests/simulator",
    "tests/properties/domain/test_search.py",
    "tests/apiserver/test_autoscaling.py",
    "tests/apiserver/test_apiserver_restart.py",
    "tests/loghub_cli/demo",
    "tests/loghub_operator/leader/test_failover.py",
    "tests/compat/test_real_clients.py",
    "tests/compat/kafka/test_kafka_restarts.py",
    "tests/compat/kafka/test_kafka_clients.py",
    "tests/loghub_worker/processing",
    "tests/loghub_worker/sink/test_where_a_shard_continues.py",
    "tests/properties/subscription/test_search.py",
    "tests/properties/test_mutants.py",
    "tests/suite",
)
NOT_FAST = ("long", "spark", "cluster", "apiserver", "tools", "node", "deep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """``arguments`` are pytest's; ``wall_s`` and ``cpu_s`` are the budget on two cores, if it has one. The
    same pytest runs the tests of the part ``first`` before.
    """

    name: str
    arguments: tuple[str, ...]
    first: "Part | None" = None
    environment: Mapping[str, str] = field(default_factory=dict)
    wall_s: float | None = None
    cpu_s: float | None = None


FAST = Part(
    name="fast",
    arguments=(*FORKS, f"--forks={PROCESSES}", "-m", f"not ({' or '.join(NOT_FAST)})"),
    wall_s=60,
    cpu_s=115,
)
# Real processes, Spark, API servers, clients and searches. They begin as soon as a process is left without a
# fast test, and the time of these on the clock then says little: cluster and preparation use the cores too.
STORIES = Part(
    name="stories",
    first=replace(FAST, wall_s=None),
    arguments=(
        *FORKS,
        f"--forks={STORY_PROCESSES}",
        *(f"--first={path}" for path in LONGEST),
        f"--first-without={','.join(NOT_FAST)}",
        "-m",
        "not (node or deep)",
    ),
    wall_s=840,
    cpu_s=1100,
)
# At the same time: it has one cluster, and waits most of the time.
CLUSTER = Part(
    name="cluster",
    arguments=("-m", "node and not deep", "tests/cluster"),
    wall_s=720,
    cpu_s=300,
)
IPV6 = Part(
    name="ipv6",
    arguments=("-m", "node", "tests/cluster"),
    environment={ip_family.OVERRIDE: ip_family.IPV6.name},
)


def deep_part(seed: int, minutes: float | None) -> Part:
    """The long tests with the cases of a seed; with ``minutes`` as many as fit, in an order of the seed."""
    arguments = (*FORKS, f"--forks={DEEP_PROCESSES}", f"--hypothesis-seed={seed}", "-m", "deep and not node")
    if minutes is not None:
        arguments += ("-p", "tests.suite.slices", f"--minutes={minutes:g}")
    return Part(name="deep", arguments=arguments)
