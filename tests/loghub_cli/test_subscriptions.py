"""``loghub subscription``, and subscriptions in ``loghub lag`` and ``loghub group reset``."""

from collections.abc import Callable
from itertools import count

import pytest

from loghub.client.port import GroupInfo, LogHub
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub.wire.subscriptions import (
    SubscribedShardStatus,
    SubscriptionConsumer,
    SubscriptionSpec,
    SubscriptionStatus,
    SubscriptionSummary,
)
from loghub_cli import subscription
from loghub_cli.output import Format, render
from loghub_cli.subscription_records import ProjectSubscription, document, lag_of, overview
from tests.loghub.client.contract import LOW, group_of
from tests.loghub_cli.command import STORE, Cli
from tests.loghub_cli.subscribed import PortConsumer

NAME = "workers"


def prepared(cli: Cli) -> PortConsumer:
    """Six logs in shard 0, of which a consumer of Shared has acknowledged the second and the fourth."""
    cli.json("subscription", "create", STORE, NAME)
    for number in range(3):
        cli.client.put_logs(STORE, group_of(f"{number} a", f"{number} b"), hash_key=LOW)
    consumer = PortConsumer(cli.client, STORE, NAME, "one")
    while len(consumer.got) < 6:
        consumer.receive()
    places = sorted(consumer.got)
    consumer.ack(places[1], places[3])
    return consumer


def test_a_subscription_is_created_listed_changed_and_deleted(cli: Cli) -> None:
    made = cli.json(
        "subscription", "create", STORE, NAME, "--type", "keyshared", "--key", "user", "--key", "shop"
    )
    assert made == {"subscription": NAME, "type": "KeyShared", "inOrder": True, "key": ["user", "shop"]}
    assert cli.json("subscription", "list", STORE) == [made]
    again = cli("subscription", "create", STORE, NAME)
    assert (again.status, again.out) == (1, "")
    assert "has the subscription workers already: `loghub subscription update` changes it" in again.err
    kept = cli("subscription", "create", STORE, NAME, "--if-not-exists", "-o", "json")
    assert kept.value == made
    assert "with other settings, which are kept" in kept.err
    changed = cli.json("subscription", "update", STORE, NAME, "--type", "Failover", "--no-in-order")
    assert changed == {"subscription": NAME, "type": "Failover", "inOrder": False, "key": None}
    assert cli.json("subscription", "list", STORE) == [changed]
    asked = cli.run("subscription", "delete", STORE, NAME)
    assert (asked.status, "--yes does not ask: Delete subscription workers" in asked.err) == (2, True)
    assert cli.json("subscription", "delete", STORE, NAME, "--yes")["deleted"] is True
    missing = cli("subscription", "show", STORE, NAME)
    assert (missing.status, "SubscriptionNotExist" in missing.err) == (1, True)


def test_one_that_another_client_creates_at_the_same_moment_is_not_taken_over(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = subscription._found
    moments = count()

    def found(client: LogHub, logstore: str, name: str) -> SubscriptionSummary | None:
        seen = listed(client, logstore, name)
        if next(moments) % 2 == 0:
            client.create_subscription(logstore, name, SubscriptionSpec(type=SubscriptionType.EXCLUSIVE))
        return seen

    monkeypatch.setattr(subscription, "_found", found)
    lost = cli("subscription", "create", STORE, NAME, "--type", "Shared")
    assert (lost.status, "has the subscription workers already" in lost.err) == (1, True)
    cli.client.delete_subscription(STORE, NAME)
    kept = cli("subscription", "create", STORE, NAME, "--type", "Shared", "--if-not-exists", "-o", "json")
    assert (kept.value["type"], "with other settings, which are kept" in kept.err) == ("Exclusive", True)


def test_a_subscription_shows_what_is_open_and_who_has_it(cli: Cli) -> None:
    consumer = prepared(cli)
    shown = cli.json("subscription", "show", STORE, NAME)
    assert (shown["state"], shown["backlogLogs"], shown["unackedLogs"]) == ("Flowing", 4, 4)
    assert [(one["consumer"], one["unackedLogs"]) for one in shown["consumers"]] == [("one", 4)]
    assert [(one["shard"], one["ackedRanges"]) for one in shown["shards"]] == [(0, 2), (1, 0)]
    lag = cli.json("lag", STORE, NAME)
    assert (lag["kind"], lag["lagLogs"], lag["unackedLogs"]) == ("subscription", 4, 4)
    assert [one["lagLogs"] for one in lag["shards"]] == [4, 0]
    cli.client.create_group(STORE, GroupInfo(name=NAME, timeout_s=60, order=False))
    assert [one["kind"] for one in cli.json("lag", STORE)] == ["sls", "subscription"]
    assert cli.json("lag", STORE, NAME)["kind"] == "sls", "a group goes first"
    assert cli.json("lag", STORE, NAME, "--subscription")["kind"] == "subscription"
    assert [one["kind"] for one in cli.json("lag", STORE, "--subscription")] == ["subscription"]
    busy = cli("subscription", "update", STORE, NAME, "--type", "Failover")
    assert (busy.status, "SubscriptionBusy" in busy.err) == (1, True)
    consumer.leave()
    cli.json("subscription", "update", STORE, NAME, "--type", "Failover")


def test_logs_are_skipped_and_marks_move_and_come_back(cli: Cli) -> None:
    consumer = prepared(cli)
    assert cli.json("subscription", "skip", STORE, NAME, 0, "--logs", 1, "--yes")["skippedLogs"] == 1
    assert cli.json("lag", STORE, NAME)["lagLogs"] == 3
    consumer.leave()
    mark = cli.json("subscription", "show", STORE, NAME)["shards"][0]["mark"]
    dry = cli.json("subscription", "seek", STORE, NAME, "--to", "begin", "--dry-run")
    assert cli.json("lag", STORE, NAME)["lagLogs"] == 3
    moved = cli.json("subscription", "seek", STORE, NAME, "--to", "begin", "--yes")
    assert (dry, moved[0]["from"]) == (moved, mark)
    assert cli.json("lag", STORE, NAME)["lagLogs"] == 6, "a seek takes all acknowledgments back"
    cli.json("subscription", "seek", STORE, NAME, "--shard", 0, "--cursor", mark, "--yes")
    assert cli.json("lag", STORE, NAME)["lagLogs"] == 4
    assert cli.json("subscription", "skip", STORE, NAME, 0, "--all", "--yes")["skippedLogs"] == 4


def test_the_checkpoints_of_a_group_become_marks_and_running_consumers_are_warned_of(cli: Cli) -> None:
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    for number in range(3):
        cli.client.put_logs(STORE, group_of(f"{number} a", f"{number} b"), hash_key=LOW)
    end = cli.client.get_cursor(STORE, 0, "end")
    cli.client.update_checkpoint(STORE, "readers", shard=0, cursor=end, consumer="", force=True)
    cli.client.put_logs(STORE, group_of("late"), hash_key=LOW)
    quiet = cli("subscription", "create", STORE, NAME, "--from-group", "readers", "-o", "json")
    assert (quiet.value["fromGroup"], quiet.value["shards"]) == ("readers", [{"shard": 0, "mark": end}])
    assert quiet.err == ""
    assert cli.json("lag", STORE, NAME, "--subscription")["lagLogs"] == 1
    cli.client.heartbeat(STORE, "readers", consumer="busy", held=())
    warned = cli("subscription", "seek", STORE, NAME, "--from-group", "readers", "--yes")
    assert warned.status == 0, warned.err
    assert "1 consumers of group readers run (busy)" in warned.err
    none = cli("subscription", "create", STORE, "other", "--from-group", "raeders")
    assert (none.status, "ConsumerGroupNotExist" in none.err) == (1, True)
    assert [one["subscription"] for one in cli.json("subscription", "list", STORE)] == [NAME]


@pytest.mark.parametrize("how", ["--yes", "--dry-run"])
@pytest.mark.parametrize("shards", [(), ("--shard", "1")])
def test_a_group_without_checkpoints_moves_nothing_and_what_to_do_is_said(
    cli: Cli, how: str, shards: tuple[str, ...]
) -> None:
    prepared(cli)
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    if shards:
        end = cli.client.get_cursor(STORE, 0, "end")
        cli.client.update_checkpoint(STORE, "readers", shard=0, cursor=end, consumer="", force=True)
    before = cli.json("lag", STORE, NAME)
    refused = cli("subscription", "seek", STORE, NAME, "--from-group", "readers", *shards, how)
    assert (refused.status, refused.out) == (1, "")
    assert "consumer group readers has no checkpoint of" in refused.err
    assert "--to begin" in refused.err
    assert cli.json("lag", STORE, NAME)["lagLogs"] == before["lagLogs"]


def test_a_group_gets_the_marks_and_hears_what_comes_again(cli: Cli) -> None:
    consumer = prepared(cli)
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    back = ("group", "reset", STORE, "readers", "--from-subscription", NAME)
    busy = cli(*back, "--yes")
    assert (busy.status, "1 consumers of subscription workers are connected (one)" in busy.err) == (1, True)
    saved = cli.json("group", "checkpoints", STORE, "readers")
    assert {one["checkpoint"] for one in saved} == {None}
    consumer.leave()
    done = cli(*back, "--yes")
    assert done.status == 0, done.err
    assert "2 logs that subscription workers has acknowledged above its marks come again" in done.err
    assert cli.json("lag", STORE, "readers")["lagLogs"] == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("create", STORE, "a/b"), "is not a valid subscription"),
        (("create", STORE, NAME, "--type", "Broadcast"), "'Broadcast' is not one of"),
        (("create", STORE, NAME, "--key", "user"), "--key is for --type KeyShared, not for Shared"),
        (("update", STORE, NAME), "give --type, --key, --in-order or --no-in-order"),
        (("seek", STORE, NAME), "give one of --to, --cursor and --from-group"),
        (("seek", STORE, NAME, "--to", "end", "--from-group", "g"), "give one of --to"),
        (("seek", STORE, NAME, "--cursor", "MTc5NTc1MzQ1MDk1MjY5NzAwMA=="), "name it with --shard"),
        (("skip", STORE, NAME, 0), "give --logs or --all"),
        (("skip", STORE, NAME, 0, "--logs", 1, "--all"), "give --logs or --all"),
    ],
)
def test_a_contradiction_has_status_2(cli: Cli, arguments: tuple[object, ...], message: str) -> None:
    result = cli("subscription", *arguments)
    assert (result.status, result.out) == (2, "")
    assert message in " ".join(result.err.split())


def test_a_log_service_without_subscriptions_refuses_in_words_and_lag_shows_its_groups(
    bare: Callable[[str], Cli],
) -> None:
    cli = bare("sdk")
    cli.client.create_project()
    cli.client.create_logstore(STORE, shards=1)
    cli.client.create_group(STORE, GroupInfo(name="readers", timeout_s=60, order=False))
    for command in (("list", STORE), ("create", STORE, NAME), ("show", STORE, NAME)):
        refused = cli("subscription", *command)
        assert (refused.status, "subscriptions need the embedded service" in refused.err) == (1, True)
    assert [one["kind"] for one in cli.json("lag", STORE)] == ["sls"]


def status(**changes: object) -> SubscriptionStatus:
    shard = SubscribedShardStatus(
        shard=0,
        state=SubscriptionState.FLOWING,
        mark="m",
        mark_index=1,
        acked_ranges=1,
        acked_logs=2,
        backlog_logs=None,
        unacked_logs=1,
        oldest_unacked_s=1.23456,
        consumers=("one",),
        end_cursor="e",
        read_only=False,
        parents=(),
    )
    consumer = SubscriptionConsumer(
        name="one",
        priority=0,
        permits=5,
        unacked_logs=1,
        shards=(0,),
        endpoint="pulsar",
        last_exchange_age_s=None,
    )
    values: dict[str, object] = {
        "name": NAME,
        "type": SubscriptionType.SHARED,
        "in_order": True,
        "key": (),
        "state": SubscriptionState.FLOWING,
        "consumers": (consumer,),
        "shards": (shard,),
        "backlog_logs": None,
        "unacked_logs": 1,
        "acknowledged_logs": 2,
        "redelivered_logs": 3,
        "oldest_unacked_s": 1.23456,
        "held_slots": 0,
    }
    return SubscriptionStatus(**(values | changes))  # type: ignore[arg-type]


def test_what_is_not_known_is_no_number_and_no_backlog_has_no_age() -> None:
    unknown = lag_of(status(), observed=None)
    assert (unknown["lagLogs"], unknown["lagSeconds"]) == (None, 1.235)
    done = lag_of(status(backlog_logs=0, oldest_unacked_s=None), observed=None)
    assert (done["lagLogs"], done["lagSeconds"]) == (0, 0.0)


def test_status_has_a_row_and_a_document_for_each_subscription() -> None:
    entry = ProjectSubscription(project="demo", logstore=STORE, status=status(backlog_logs=7))
    head, row = render(overview([entry]), Format.TABLE).splitlines()
    assert head.split()[:4] == ["SUBSCRIPTION", "PROJECT", "LOGSTORE", "TYPE"]
    assert row.split() == [NAME, "demo", STORE, "Shared", "Flowing", "1", "7", "1"]
    written = document(entry)
    assert (written["kind"], written["metadata"]) == ("Subscription", {"name": NAME})
    assert written["status"]["redeliveredLogs"] == 3  # type: ignore[call-overload,index]
