"""The commands of projects, logstores, shards and groups, by both clients, at a real service."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import EndpointUnreachable
from tests.loghub.client.contract import HIGH, LOW, group_of
from tests.loghub_cli.command import STORE, Cli


@pytest.fixture(params=["http", "sdk"])
def new(request: pytest.FixtureRequest, bare: Callable[[str], Cli]) -> Cli:
    return bare(request.param)


def test_a_project_is_created_shown_listed_and_deleted(new: Cli) -> None:
    created = new.json("project", "create", new.project, "--description", "for a test")
    assert created == {"project": new.project, "description": "for a test"}
    shown = new.json("project", "show", new.project)
    assert shown.pop("logstores") == []
    assert shown in new.json("project", "list")
    assert {key: shown[key] for key in created} == created
    again = new("project", "create", new.project)
    assert again.status == 1
    assert again.err.startswith("loghub: ProjectAlreadyExist")
    assert new.json("project", "delete", new.project, "--yes") == {"project": new.project, "deleted": True}
    gone = new("project", "show", new.project)
    assert (gone.status, gone.out) == (1, "")
    assert "ProjectNotExist" in gone.err


def test_a_logstore_is_created_shown_listed_and_deleted(either: Cli) -> None:
    created = either.json("logstore", "create", "other-store", "--shards", 3, "--ttl-days", 30)
    assert created == {"logstore": "other-store", "shardCount": 3, "ttlDays": 30}
    assert [one["logstore"] for one in either.json("logstore", "list")] == [STORE, "other-store"]
    listed = either.json("logstore", "list", "--details")
    assert {key: listed[1][key] for key in created} == created
    shown = either.json("logstore", "show", "other-store")
    assert (shown["writableShards"], shown["readOnlyShards"], shown["ttlDays"]) == (3, 0, 30)
    assert [shard["shard"] for shard in shown["shards"]] == [0, 1, 2]
    assert shown["consumerGroups"] == []
    deleted = either.json("logstore", "delete", "other-store", "-y")
    assert deleted == {"logstore": "other-store", "deleted": True}
    assert either.client.list_logstores() == (STORE,)


def test_what_exists_is_kept_on_request(cli: Cli) -> None:
    for noun in (("project", "create", cli.project), ("logstore", "create", STORE)):
        assert "AlreadyExist" in cli(*noun).err
    kept = cli.json("project", "create", cli.project, "--if-not-exists")
    assert kept == {"project": cli.project, "description": ""}
    result = cli("logstore", "create", STORE, "--shards", 9, "--if-not-exists", "-o", "json")
    assert result.value == {"logstore": STORE, "shardCount": 2, "ttlDays": 7}
    assert result.err == "loghub: it exists already with other settings, which are kept\n"
    group = ("group", "create", STORE, "readers", "--if-not-exists", "-o", "json")
    assert cli(*group).value == cli(*group).value
    assert cli(*group).err == ""
    assert cli("logstore", "create", "UPPER", "--if-not-exists").status == 2


def test_a_list_of_logstores_is_one_request_unless_details_are_asked_for(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(HttpLogHub, "get_logstore", lambda _, name: asked.append(name))
    cli.client.create_logstore("other-store", shards=1)
    assert cli.json("logstore", "list") == [{"logstore": STORE}, {"logstore": "other-store"}]
    assert asked == []


@pytest.mark.long
def test_a_deletion_is_not_done_unless_it_is_confirmed(cli: Cli) -> None:
    refused = cli.run("logstore", "delete", STORE)
    assert refused.status == 2
    assert "--yes does not ask" in refused.err
    assert cli.run("logstore", "delete", STORE, text="n\n").status == 1
    assert cli.client.logstore_exists(STORE)
    assert cli.run("logstore", "delete", STORE, text="y\n").status == 0
    assert not cli.client.logstore_exists(STORE)


def test_shards_are_split_merged_shown_and_deleted(either: Cli) -> None:
    parts = either.json("shard", "split", STORE, 0, "--into", 3)
    assert [(one["shard"], one["status"]) for one in parts] == [
        (0, "readonly"),
        (2, "readwrite"),
        (3, "readwrite"),
        (4, "readwrite"),
    ]
    key = "c" + "0" * 31
    assert either.json("shard", "split", STORE, 1, "--at", key)[2]["beginKey"] == key
    assert [one["shard"] for one in either.json("shard", "merge", STORE, 2)] == [2, 3, 7]
    parents = {one["shard"]: one["parents"] for one in either.json("shard", "list", STORE)}
    assert parents == {0: [], 1: [], 2: [0], 3: [0], 4: [0], 5: [1], 6: [1], 7: [2, 3]}
    shown = either.json("logstore", "show", STORE)
    assert (shown["writableShards"], shown["readOnlyShards"]) == (4, 4)
    either.client.put_logs(STORE, group_of("a"), hash_key=LOW)
    shown = either.json("shard", "show", STORE, 7)
    assert shown["logGroups"] == 1
    assert wire_cursor.decode(shown["endCursor"]) == wire_cursor.decode(shown["beginCursor"]) + 1
    deleted = either.json("shard", "delete", STORE, 0, "--yes")
    assert deleted == {"logstore": STORE, "shard": 0, "deleted": True}
    assert 0 not in [one["shard"] for one in either.json("shard", "list", STORE)]
    assert "ParameterInvalid" in either("shard", "delete", STORE, 7, "--yes").err
    assert "ShardNotExist" in either("shard", "show", STORE, 99).err


def test_a_group_is_created_changed_shown_and_deleted(either: Cli) -> None:
    created = either.json("group", "create", STORE, "readers", "--timeout", 30, "--in-order")
    assert created == {"group": "readers", "timeoutSeconds": 30, "inOrder": True}
    listed = {**created, "kind": "sls", "state": None, "members": None}
    assert either.json("group", "list", STORE) == [listed]
    changed = either.json("group", "update", STORE, "readers", "--no-in-order")
    assert changed == {**created, "inOrder": False}
    shown = either.json("group", "show", STORE, "readers")
    assert [shard["shard"] for shard in shown["shards"]] == [0, 1]
    assert {key: shown[key] for key in changed} == changed
    assert either("group", "update", STORE, "readers").status == 2
    deleted = either.json("group", "delete", STORE, "readers", "--yes")
    assert deleted == {"logstore": STORE, "group": "readers", "deleted": True}
    missing = either("group", "delete", STORE, "readers", "--yes")
    assert missing.status == 1
    assert "ConsumerGroupNotExist" in missing.err


def test_the_consumers_of_a_group_are_shown(cli: Cli) -> None:
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    cli.client.heartbeat(STORE, "readers", consumer="one", held=())
    cli.client.heartbeat(STORE, "readers", consumer="one", held=(0, 1))
    shown = cli.json("group", "show", STORE, "readers")
    assert [(one["consumer"], one["shards"]) for one in shown["consumers"]] == [("one", [0, 1])]
    assert {shard["consumer"] for shard in shown["shards"]} == {"one"}
    assert "one" in cli("group", "show", STORE, "readers").out
    end = cli.client.get_cursor(STORE, 0, "end")
    for command in (
        ("reset", STORE, "readers", "--to", "begin", "--yes"),
        ("set-checkpoint", STORE, "readers", 0, end, "--force"),
    ):
        before = cli.client.get_checkpoints(STORE, "readers")
        refused = cli("group", *command)
        assert refused.status == 1
        assert "1 consumers of group readers run (one)" in refused.err
        assert cli.client.get_checkpoints(STORE, "readers") == before
        assert cli("group", *command, "--live").status == 0


def test_checkpoints_are_shown_set_and_reset(either: Cli) -> None:
    either.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    for number in range(3):
        either.client.put_logs(STORE, group_of(str(number)), hash_key=LOW)
    either.client.put_logs(STORE, group_of("high"), hash_key=HIGH)
    end = either.client.get_cursor(STORE, 0, "end")

    def saved() -> list[str | None]:
        return [one["checkpoint"] for one in either.json("group", "checkpoints", STORE, "readers")]

    refused = either("group", "set-checkpoint", STORE, "readers", 0, end)
    assert (refused.status, saved()) == (2, [None, None])
    assert "--force" in refused.err
    forced = either.json("group", "set-checkpoint", STORE, "readers", 0, end, "--force")
    assert forced == [{"shard": 0, "from": None, "to": end}]
    stranger = either("group", "set-checkpoint", STORE, "readers", 1, end, "--consumer", "stranger")
    assert stranger.status == 1
    assert saved() == [end, None]

    begins = [either.client.get_cursor(STORE, shard, "begin") for shard in (0, 1)]
    planned = either.json("group", "reset", STORE, "readers", "--to", "begin", "--dry-run")
    assert [(one["from"], one["to"]) for one in planned] == [(end, begins[0]), (None, begins[1])]
    assert saved() == [end, None]
    assert either.json("group", "reset", STORE, "readers", "--to", "begin", "--yes") == planned
    assert saved() == begins
    one = either.json("group", "reset", STORE, "readers", "--to", "end", "--shard", 1, "--yes")
    assert [(entry["shard"], entry["from"]) for entry in one] == [(1, begins[1])]
    again = either.json("group", "set-checkpoint", STORE, "readers", 1, one[0]["to"], "--force")
    assert [entry["from"] for entry in again] == [one[0]["to"]]
    assert saved() == [begins[0], either.client.get_cursor(STORE, 1, "end")]
    # Everything was received within the last hour.
    either.json("group", "reset", STORE, "readers", "--to", "1h", "--yes")
    assert saved() == begins
    missing = either("group", "reset", STORE, "readers", "--to", "end", "--shard", 9, "--yes")
    assert missing.status == 2
    assert "ConsumerGroupNotExist" in either("group", "reset", STORE, "none", "--to", "end", "--yes").err


def test_a_reset_that_ends_halfway_names_the_checkpoints_that_it_has_replaced(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    cli.client.put_logs(STORE, group_of("low"), hash_key=LOW)
    begin, end = (cli.client.get_cursor(STORE, 0, position) for position in ("begin", "end"))
    assert cli("group", "set-checkpoint", STORE, "readers", 0, end, "--force").status == 0
    update = HttpLogHub.update_checkpoint

    def of_the_first_alone(client: HttpLogHub, *place: str, shard: int, **rest: Any) -> None:
        if shard:
            raise EndpointUnreachable("here", "reset", definite=False)
        update(client, *place, shard=shard, **rest)

    monkeypatch.setattr(HttpLogHub, "update_checkpoint", of_the_first_alone)
    ended = cli("group", "reset", STORE, "readers", "--to", "begin", "--yes")
    assert ended.status == 1
    assert f"reset are: 0 (from {end} to {begin})" in ended.err


@pytest.mark.parametrize(
    "command",
    [
        ("project", "list"),
        ("logstore", "list"),
        ("shard", "list", STORE),
        ("group", "list", STORE),
        ("logstore", "show", STORE),
        ("group", "checkpoints", STORE, "readers"),
        ("lag", STORE),
        ("lag", STORE, "readers"),
    ],
    ids=" ".join,
)
def test_every_format_has_the_same_values(cli: Cli, command: tuple[str, ...]) -> None:
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    as_json, as_yaml, as_table = (cli(*command, "-o", form) for form in ("json", "yaml", "table"))
    value = json.loads(as_json.out)
    other = yaml.safe_load(as_yaml.out)
    for one in (value, other):
        for record in one if isinstance(one, list) else [one]:
            record.pop("observed", None)
    assert value == other
    first = value[0] if isinstance(value, list) else value
    name = next(str(one) for one in first.values() if one is not None)
    assert name in as_table.out
