"""What a consumer and the log service agree on in a subscription: its settings, what errors mean, and which
logs an answer has."""

from loghub.client.port import LogHub
from loghub.contract.worker import WorkerReason
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import Code, ExtensionMissing, LogHubError, LogHubException
from loghub.wire.loggroup import MAX_PULL_BYTES, split
from loghub.wire.subscriptions import DeliveredGroup, Exchanged, SubscriptionSpec, SubscriptionSummary
from loghub_consumer.batch import count_logs
from loghub_consumer.errors import rejects_content
from loghub_consumer.log_service import ReportedError, to_reported_error
from loghub_consumer.settings import ConsumerSettings
from loghub_consumer.unacknowledged import Unsettled


def reported_error(error: LogHubException) -> ReportedError:
    """The error as it is shown to users."""
    if isinstance(error, ExtensionMissing):
        return ReportedError(WorkerReason.SUBSCRIPTION_UNSUPPORTED.value, UNSUPPORTED)
    return to_reported_error(error)


def ends_consumer(error: LogHubException, *, is_worker: bool) -> bool:
    """Whether no repetition of a call can succeed: the log service refuses what this consumer says of itself
    or of logs, or the subscription has another type, which in a worker the operator puts right. Any other
    refusal passes once a lease, a key, a quota or a logstore is there."""
    is_other_type = isinstance(error, LogHubError) and error.code == Code.SUBSCRIPTION_MISMATCH
    return rejects_content(error) or (is_other_type and not is_worker)


def damage_of(answer: Exchanged) -> ReportedError:
    """What an answer says of log data that cannot be read; it has logs of the other shards all the same."""
    if not answer.unreadable:
        return ReportedError()
    words = [f"shard {shard}: {why}" for shard, why in sorted(answer.unreadable.items())]
    return ReportedError(Code.INTERNAL_SERVER_ERROR.value, f"log data cannot be read: {'; '.join(words)}")


UNSUPPORTED = (
    "a subscription needs the embedded service, which this endpoint is not; leave out subscription, so that"
    " the consumers share the shards of a group, or use fan_out for more threads for a shard"
)


def unsettled(group: DeliveredGroup) -> list[Unsettled]:
    """The logs of a log group, in parts: the logs of a part have the same number of redeliveries."""
    assert group.body is not None
    (raw,) = split(group.body.unpacked(max_size=MAX_PULL_BYTES))
    counts = group.redeliveries
    if len(set(counts)) <= 1:
        return [_part(group, bytes(raw), group.indexes, counts[0] if counts else 0)]
    indexes = group.indexes if group.indexes is not None else tuple(range(len(counts)))
    return [
        _part(
            group, bytes(raw), tuple(i for i, of in zip(indexes, counts, strict=True) if of == count), count
        )
        for count in sorted(set(counts))
    ]


def _part(group: DeliveredGroup, raw: bytes, only: tuple[int, ...] | None, redeliveries: int) -> Unsettled:
    part = Unsettled(
        decode_cursor(group.cursor),
        raw,
        None if only is None else set(only),
        redeliveries,
        False,
        logs=count_logs(raw) if only is None else 0,
    )
    part.attempts = redeliveries
    part.is_limited = redeliveries > 0  # other consumers failed before; this one may try once more
    return part


def require_subscription(client: LogHub, settings: ConsumerSettings) -> None:
    """Create the subscription if the settings say so. Raises `ExtensionMissing`, and `LogHubError` if it does
    not exist or has another type or key."""
    wanted = settings.subscription
    assert wanted is not None
    if not client.has_subscriptions():
        raise ExtensionMissing(UNSUPPORTED)
    name, place = settings.consumer_group, f"logstore {settings.project}/{settings.logstore}"
    found = _found(client, settings)
    if found is None and settings.create_group:
        spec = SubscriptionSpec(
            type=wanted.type,
            start=settings.start_position,
            in_order=settings.in_order,
            key=wanted.key,
            must_be_new=True,
        )
        try:
            client.create_subscription(settings.logstore, name, spec)
            return
        except LogHubError as error:
            if error.code != Code.SUBSCRIPTION_ALREADY_EXIST:
                raise
        found = _found(client, settings)  # another consumer was faster
    if found is None:
        raise LogHubError(
            Code.SUBSCRIPTION_NOT_EXIST,
            404,
            f"{place} has no subscription {name}; create it, or set create_group",
        )
    if (found.type, found.key) != (wanted.type, wanted.key):
        raise LogHubError(
            Code.SUBSCRIPTION_MISMATCH,
            409,
            f"the subscription {name} of {place} has the type {found.type} and the key {list(found.key)}, and"
            f" the settings say {wanted.type} and {list(wanted.key)}; change one, or take another name",
        )


def _found(client: LogHub, settings: ConsumerSettings) -> SubscriptionSummary | None:
    every = client.list_subscriptions(settings.logstore)
    return next((one for one in every if one.name == settings.consumer_group), None)
