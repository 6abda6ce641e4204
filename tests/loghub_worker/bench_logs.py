"""Logs of ten fields for the benchmarks: about 270 bytes each, as an access log has them."""

import asyncio
import random
from collections.abc import Iterator

from loghub.clock import SystemClock
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_service.ports import OsDisk, OsRandom, Platform
from loghub_service.settings import ServiceSettings
from loghub_service.start import open_engine
from loghub_service.storage.segment import NewGroup
from tests.support import ServiceProcess

FIELDS = ("host", "user", "method", "path", "status", "bytes", "referer", "agent", "request_id", "upstream")
DISTINCT_LOGS = 100_000  # then they are repeated
FIRST_TIME = 1_767_225_600
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "curl/8.11.0", "Go-http-client/2.0")


def log_of(chance: random.Random, number: int) -> Log:
    """One log; the texts repeat as often as in a real access log."""
    texts = (
        f"10.{chance.randrange(8)}.{chance.randrange(250)}.{chance.randrange(250)}",
        f"user-{chance.randrange(2000)}",
        chance.choice(("GET", "GET", "POST", "PUT")),
        f"/api/v1/items/{chance.randrange(9999)}?page={chance.randrange(9)}",
        chance.choice(("200", "200", "304", "404")),
        str(chance.randrange(90_000)),
        "https://shop.example/catalogue",
        chance.choice(AGENTS),
        f"{chance.getrandbits(64):016x}",
        f"upstream-{chance.randrange(16)}:8080",
    )
    return Log(time=FIRST_TIME + number, contents=tuple(zip(FIELDS, texts, strict=True)))


def encoded_groups(per_group: int) -> list[bytes]:
    """Log groups of this many logs, with all distinct logs; the same in each run."""
    chance = random.Random(7)
    return [
        encode(
            LogGroup(logs=tuple(log_of(chance, n) for n in range(per_group)), topic="access", source="host")
        )
        for _ in range(DISTINCT_LOGS // per_group)
    ]


def fill(service: ServiceProcess, *, logs: int, per_group: int) -> None:
    """Put log groups of this many logs into all shards of the logstore, the same number into each. They are
    appended while the service is stopped: by PutLogs, small log groups would take longer than the rest."""
    groups = encoded_groups(per_group)
    service.terminate()
    asyncio.run(_append(service, groups, logs // per_group, per_group))
    service.start()


async def _append(service: ServiceProcess, groups: list[bytes], count: int, per_group: int) -> None:
    settings = ServiceSettings(data=str(service.data), host="127.0.0.1", port=0)
    platform = Platform(clock=SystemClock(), disk=OsDisk(), random=OsRandom())
    engine = await open_engine(settings, platform, on_failed=print)
    new = [NewGroup(group=group, logs=per_group, received_us=engine.now_us()) for group in groups]
    shards = list(engine.logs.values())
    for number, log in enumerate(shards):
        left = count // len(shards) + (number < count % len(shards))
        while left:
            log.append(new[:left])
            left -= min(left, len(new))
        log.sync()
    await engine.close()


def columns_of_fields() -> Iterator[str]:
    """An SQL expression for each field."""
    return (f"contents['{name}'] AS {name}" for name in FIELDS)
