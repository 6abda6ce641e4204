"""Subscriptions as `loghub subscription`, `lag` and `status` show them.

Only the embedded service has subscriptions. The lag of a subscription is its backlog: the logs without an
acknowledgment, delivered or not, and the age of the oldest of these logs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import click

from loghub.client.http import HttpLogHub
from loghub.client.port import LogHub
from loghub.wire.errors import ExtensionMissing
from loghub.wire.subscriptions import (
    SubscribedShardStatus,
    SubscriptionConsumer,
    SubscriptionSpec,
    SubscriptionStatus,
    SubscriptionSummary,
)
from loghub_cli.output import Record

SUBSCRIPTION = "subscription"
# `loghub status` asks for each logstore on its own: so many requests take a second.
MAX_LOGSTORES = 200


def subscriptions(client: LogHub, logstore: str) -> tuple[SubscriptionSummary, ...]:
    """All subscriptions of the logstore; none at a service that has no subscriptions."""
    try:
        return client.list_subscriptions(logstore)
    except ExtensionMissing:
        return ()


def listed(summary: SubscriptionSummary | SubscriptionStatus) -> Record:
    """A row of `loghub subscription list`."""
    return settings_record(
        summary.name,
        SubscriptionSpec(type=summary.type, in_order=summary.in_order, key=summary.key),
    )


def settings_record(name: str, spec: SubscriptionSpec) -> Record:
    """The settings of a subscription."""
    return {
        "subscription": name,
        "type": spec.type.value,
        "inOrder": spec.in_order,
        "key": list(spec.key) or None,
    }


def shown(status: SubscriptionStatus) -> Record:
    """What `loghub subscription show` shows."""
    return {
        **listed(status),
        "state": status.state.value,
        "backlogLogs": status.backlog_logs,
        "unackedLogs": status.unacked_logs,
        "acknowledgedLogs": status.acknowledged_logs,
        "redeliveredLogs": status.redelivered_logs,
        "oldestUnackedSeconds": _age(status.oldest_unacked_s),
        "consumers": [_consumer(one) for one in status.consumers],
        "shards": [
            {
                **_shard(one),
                "markIndex": one.mark_index,
                "ackedRanges": one.acked_ranges,
                "backlogLogs": one.backlog_logs,
                "unackedLogs": one.unacked_logs,
                "oldestUnackedSeconds": _age(one.oldest_unacked_s),
            }
            for one in status.shards
        ],
    }


def lag_of(status: SubscriptionStatus, *, observed: str | None) -> Record:
    """What `loghub lag` shows."""
    return {
        "group": status.name,
        "kind": SUBSCRIPTION,
        "type": status.type.value,
        "state": status.state.value,
        "observed": observed,
        "lagLogs": status.backlog_logs,
        "lagSeconds": _lag_seconds(status),
        "unackedLogs": status.unacked_logs,
        "shards": [
            {
                **_shard(one),
                "lagLogs": one.backlog_logs,
                "lagSeconds": _lag_seconds(one),
                "unackedLogs": one.unacked_logs,
            }
            for one in status.shards
        ],
    }


def _lag_seconds(status: SubscriptionStatus | SubscribedShardStatus) -> float | None:
    """The age of the oldest log of the backlog; 0 if there is no backlog."""
    return 0.0 if status.backlog_logs == 0 else _age(status.oldest_unacked_s)


def _consumer(consumer: SubscriptionConsumer) -> Record:
    return {
        "consumer": consumer.name,
        "endpoint": consumer.endpoint,
        "priority": consumer.priority,
        "permits": consumer.permits,
        "unackedLogs": consumer.unacked_logs,
        "exchangeAgeSeconds": _age(consumer.last_exchange_age_s),
        "shards": list(consumer.shards),
    }


def _shard(status: SubscribedShardStatus) -> Record:
    return {
        "shard": status.shard,
        "state": status.state.value,
        "consumers": list(status.consumers) or None,
        "mark": status.mark,
    }


def _age(seconds: float | None) -> float | None:
    """Milliseconds are enough for an age."""
    return None if seconds is None else round(seconds, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSubscription:
    """A subscription, and where it is."""

    project: str
    logstore: str
    status: SubscriptionStatus


def of_project(client: HttpLogHub, project: str) -> Iterator[ProjectSubscription]:
    """All subscriptions of the first `MAX_LOGSTORES` logstores; more are named on standard error."""
    logstores = client.list_logstores()
    for logstore in islice(logstores, MAX_LOGSTORES):
        for summary in subscriptions(client, logstore):
            status = client.subscription_status(logstore, summary.name)
            yield ProjectSubscription(project=project, logstore=logstore, status=status)
    if len(logstores) > MAX_LOGSTORES:
        click.echo(
            f"loghub: project {project} has {len(logstores)} logstores, and the subscriptions of the first"
            f" {MAX_LOGSTORES} are shown; `loghub subscription list LOGSTORE` shows the others",
            err=True,
        )


def document(entry: ProjectSubscription) -> Record:
    """What `loghub status` prints as JSON or YAML, next to each LogHubConsumerGroup."""
    status = entry.status
    return {
        "kind": "Subscription",
        "metadata": {"name": status.name},
        "spec": {
            "project": entry.project,
            "logstore": entry.logstore,
            "type": status.type.value,
            "inOrder": status.in_order,
            "key": list(status.key),
        },
        "status": {
            "state": status.state.value,
            "consumers": len(status.consumers),
            "backlogLogs": status.backlog_logs,
            "unackedLogs": status.unacked_logs,
            "redeliveredLogs": status.redelivered_logs,
            "oldestUnackedSeconds": _age(status.oldest_unacked_s),
        },
    }


def overview(entries: Iterable[ProjectSubscription]) -> list[Record]:
    """A row for each subscription."""
    return [
        {
            "subscription": entry.status.name,
            "project": entry.project,
            "logstore": entry.logstore,
            "type": entry.status.type.value,
            "state": entry.status.state.value,
            "consumers": len(entry.status.consumers),
            "backlogLogs": entry.status.backlog_logs,
            "unackedLogs": entry.status.unacked_logs,
        }
        for entry in entries
    ]
