"""How much this machine's clock is ahead of the service's."""

import time
from dataclasses import replace
from email.utils import formatdate

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.transport import ahead_s
from tests.loghub.client.adapters import KEY
from tests.loghub.client.scripted import reply_json, scripted

NOW_S = 1_763_888_400.0


@pytest.mark.parametrize(
    ("off_s", "expected"), [(0, 0), (29, 0), (31, 60), (400, 420), (-400, -420), (840, 840)]
)
def test_the_difference_is_that_of_the_date_in_whole_minutes(off_s: int, expected: int) -> None:
    for name in ("Date", "date"):
        assert ahead_s({name: formatdate(NOW_S - off_s, usegmt=True)}, now_unix_s=NOW_S) == expected


@pytest.mark.parametrize("date", [None, "", "today", "Mon, 01 Jan 2024 00:00:00 +99999999999999"])
def test_without_a_time_there_is_no_difference(date: str | None) -> None:
    assert ahead_s({} if date is None else {"Date": date}, now_unix_s=NOW_S) == 0


def test_checkpoints_have_the_time_of_this_machine() -> None:
    """A consumer that saved one ten seconds ago did so ten seconds ago, whatever this clock says."""
    service_s = time.time() - 400
    saved_us = round((service_s - 10) * 1_000_000)
    body = [
        {"shard": 0, "checkpoint": "MQ==", "updateTime": saved_us, "consumer": "theirs"},
        {"shard": 1, "checkpoint": "", "updateTime": 0, "consumer": ""},
    ]
    reply = reply_json(body)
    dated = replace(reply, headers={**reply.headers, "Date": formatdate(service_s, usegmt=True)})
    with scripted(dated) as server:
        client = AliyunLogHub(server.endpoint, "demo", credentials=KEY, agent="g/c")
        first, second = client.get_checkpoints("access", "g")
        client.close()
    assert abs(time.time() - first.updated_unix_us / 1_000_000 - 10) <= 45
    assert second.updated_unix_us == 0
