"""The vendor's Java, Go and Python SDKs write to the service, unmodified, in every way that they have.

A small program for each (`programs`) reads its settings from standard input, puts one log in each way (every
compression of the SDK, balanced and by a hash key, and what this service refuses), and splits shard 0: Go
into three by a number, the others at a key. It prints one JSON object: ``written`` has the logs that were
taken, ``refused`` the errors by what was requested, and ``shards`` the number of shards in the answer to the
split.
"""

import json
import subprocess

import pytest

from loghub.client.port import LogHub
from loghub.wire.loggroup import decode, split
from tests.compat.consumers import LANGUAGES
from tests.compat.place import Place
from tests.compat.sdk import LOGSTORE

pytestmark = [pytest.mark.tools, pytest.mark.timeout(600)]

GUARD_S = 300
HASH_KEY = "f" * 32
WAYS = {
    "go": ("lz4", "none", "zstd"),
    "java": ("", "lz4", "deflate"),
    "python": ("lz4", "none"),
}
BY_KEY = {"go": ("by key",), "java": ("by key", "by key of its request"), "python": ("by key",)}
ONLY = {"go": {"plain call"}, "java": set[str](), "python": set[str]()}
REFUSED = {
    "go": {"processor": "this service has no processors"},
    "java": {"as JSON": "InvalidContentType"},
    "python": dict[str, str](),
}


def lines_of(client: LogHub, shard: int) -> set[str]:
    cursor = client.get_cursor(LOGSTORE, shard, "begin")
    pulled = client.pull_logs(LOGSTORE, shard, cursor=cursor, count=1000)
    logs = [log for group in split(pulled.body) for log in decode(group).logs]
    return {value.decode() for log in logs for _, value in log.contents if isinstance(value, bytes)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_way_to_put_logs_arrives_or_is_refused_in_words(small_place: Place, language: str) -> None:
    small_place.create(shards=2, groups=1)
    command, settings = small_place.consumers.program(language, "produce")
    done = subprocess.run(
        command,
        input=json.dumps(settings | {"hashKey": HASH_KEY}).encode(),
        env=small_place.consumers.environment(),
        capture_output=True,
        timeout=GUARD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout.splitlines()[-1])
    by_key = {f"{way} {route}" for way in WAYS[language] for route in BY_KEY[language]}
    balanced = {f"{way} balanced" for way in WAYS[language]} | ONLY[language]
    assert set(said["written"]) == by_key | balanced, said["refused"]
    shards = small_place.client.list_shards(LOGSTORE)
    found = {shard.shard: lines_of(small_place.client, shard.shard) for shard in shards}
    assert set.union(*found.values()) == by_key | balanced
    last = max(shards, key=lambda shard: (not shard.read_only, shard.end_key))
    assert by_key <= found[last.shard]
    assert said["refused"].keys() == REFUSED[language].keys()
    for asked, words in REFUSED[language].items():
        assert words in said["refused"][asked]
    assert said["shards"] == (4 if language == "go" else 3)  # the old one and the new ones
    assert len(shards) == 1 + said["shards"]
