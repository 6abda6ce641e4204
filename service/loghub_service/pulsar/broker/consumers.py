"""The commands of consumers and readers.

A consumer belongs to one shard. Its subscription belongs to the logstore: what begins, which types exclude
each other and what is acknowledged is decided in `loghub_service.subscription`. A command for a consumer that
is not here (any more) is an error if it has a request id, and nothing otherwise: clients send some after a
SEEK.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from loghub.domain.log_position import group_end, index_of, ordinal_of, position_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.connections.service_ports import Access
from loghub_service.dispatch.driver import Dispatch
from loghub_service.dispatch.ports import SavedSubscription
from loghub_service.pulsar.broker import ids
from loghub_service.pulsar.broker.connection import Complete
from loghub_service.pulsar.broker.consumer import PulsarConsumer
from loghub_service.pulsar.broker.dispatch_entries import DispatchEntries, joined_runs
from loghub_service.pulsar.broker.ids import AckedEntries, BadId, LogBound, Run
from loghub_service.pulsar.broker.names import check_subscription
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.broker.session import PulsarSession
from loghub_service.pulsar.broker.store import PulsarTopic
from loghub_service.pulsar.records.entries import (
    EntryToSend,
    GroupToSend,
    ordered_entries,
    single_entries,
)
from loghub_service.pulsar.wire import consumers as wire
from loghub_service.pulsar.wire.consumers import AckType, InitialPosition, KeySharedMode, SubType
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.session import CommandSuccess
from loghub_service.pulsar.wire.values import MessageIdData
from loghub_service.subscription.events import (
    Ack,
    AckUpTo,
    Flow,
    Join,
    Redeliver,
    Refusal,
    SeekTo,
    ShardStart,
)
from loghub_service.subscription.state import SubscriptionSettings

_TYPES = {
    SubType.EXCLUSIVE: SubscriptionType.EXCLUSIVE,
    SubType.SHARED: SubscriptionType.SHARED,
    SubType.FAILOVER: SubscriptionType.FAILOVER,
    SubType.KEY_SHARED: SubscriptionType.KEY_SHARED,
}
_TYPE_NAMES = {SubscriptionType.KEY_SHARED: "Key_Shared"}  # Pulsar's word, where it is another
_REFUSALS = {
    Refusal.CONSUMER_BUSY: (
        ServerError.CONSUMER_BUSY,
        "an exclusive consumer, or one of another type, is connected to the subscription",
    ),
    Refusal.SLOTS_TAKEN: (ServerError.CONSUMER_ASSIGN_ERROR, "another consumer has some of the hash ranges"),
    Refusal.BAD_SLOTS: (
        ServerError.CONSUMER_ASSIGN_ERROR,
        "hash ranges lie in 0 to 65535 and do not overlap; a consumer with sticky keys has one at least",
    ),
    Refusal.TOO_MANY_CONSUMERS: (
        ServerError.CONSUMER_BUSY,
        "the subscription has the most consumers that a shard may have: close some",
    ),
}


async def subscribe(session: PulsarSession, command: wire.CommandSubscribe) -> Complete | None:
    session.check_may(Access.READ)
    check_subscription(command.subscription)
    try:
        consumer = await _joined(session, command)
    except HeldShard as error:
        return _joined_later(session, command, error)
    return _subscribed(consumer, command.request_id)


class HeldShard(RefusedCommand):
    """An exclusive consumer has the shard."""

    def __init__(self, holder: PulsarConsumer) -> None:
        super().__init__(*_REFUSALS[Refusal.CONSUMER_BUSY])
        self.holder = holder


async def _joined(session: PulsarSession, command: wire.CommandSubscribe) -> PulsarConsumer:
    """The consumer, which is a member of its subscription now. Raises RefusedCommand."""
    known = session.consumers.get(command.consumer_id)
    if known is not None:  # the client takes it for disconnected, and would try again forever
        return known
    session.check_room()
    named = await session.topic_or_new(command.topic)
    topic, shard = named.topic, named.shard()
    saved = await _subscription(session, command, topic, shard)
    dispatch = session.dispatches.of(topic, saved)
    try:
        entries = _entries(session, topic, dispatch)
        if not saved.state.settings.is_durable:
            await _begin_reader(dispatch, entries, command, shard)
        consumer = PulsarConsumer(session, command, dispatch=dispatch, entries=entries, shard=shard)
        dispatch.refresh()  # the shard may be new
        exists = shard in saved.state.shards
        refusal = dispatch.join(consumer, _join(consumer, command) if exists else None)
        is_exclusive = saved.state.settings.type is SubscriptionType.EXCLUSIVE
        if refusal is Refusal.CONSUMER_BUSY and is_exclusive and command.sub_type is SubType.EXCLUSIVE:
            for holder in map(dispatch.consumers.__getitem__, _others_at(consumer)):
                if isinstance(holder, PulsarConsumer):
                    raise HeldShard(holder)
        if refusal is not None:
            raise RefusedCommand(*_REFUSALS.get(refusal, (ServerError.NOT_ALLOWED_ERROR, refusal.value)))
    except BaseException:
        dispatch.end_if_empty()
        raise
    session.consumers[command.consumer_id] = consumer
    return consumer


async def _joined_later(session: PulsarSession, command: wire.CommandSubscribe, held: HeldShard) -> None:
    """Subscribe in place of an exclusive consumer whose client is gone, as Pulsar does: a machine without
    power closes no connection."""
    if await held.holder.is_alive():
        raise held
    await _subscribed(await _joined(session, command), command.request_id)


def _entries(session: PulsarSession, topic: PulsarTopic, dispatch: Dispatch) -> DispatchEntries:
    """Of all Pulsar consumers of the subscription, in one form. Raises RefusedCommand for another."""
    found = dispatch.preparation
    if isinstance(found, DispatchEntries) and found.topic.form is topic.form:
        return found
    made = DispatchEntries(session.broker, topic, dispatch)
    if isinstance(found, DispatchEntries):
        if any(isinstance(other, PulsarConsumer) for other in dispatch.consumers.values()):
            raise RefusedCommand(
                ServerError.NOT_ALLOWED_ERROR,
                f"the consumers of subscription {dispatch.saved.name!r} get logs in the form "
                f"{found.topic.form.value}; name the topic with the same suffix as they do, or use another "
                "subscription",
            )
        made.unseeded = found.unseeded
    dispatch.preparation = made
    return made


async def _subscribed(consumer: PulsarConsumer, request_id: int) -> None:
    await consumer.dispatch.saved.durable()
    consumer.session.send(CommandSuccess(request_id=request_id))
    consumer.subscribed()


def _join(consumer: PulsarConsumer, command: wire.CommandSubscribe) -> Join:
    meta = command.key_shared_meta
    sticky = meta is not None and meta.key_shared_mode is KeySharedMode.STICKY
    return Join(
        consumer=consumer.number,
        name=consumer.name,
        type=_TYPES[command.sub_type],
        shards=(consumer.partition,),
        priority=command.priority_level,
        slots=tuple((one.start, one.end) for one in meta.hash_ranges) if meta and sticky else None,
        takes_any_size=False,
    )


async def _subscription(
    session: PulsarSession, command: wire.CommandSubscribe, topic: PulsarTopic, shard: int
) -> SavedSubscription:
    """The subscription that the command names, made if it is not there: for the whole logstore, so that a
    shard that is born later begins at its first log. Raises RefusedCommand."""
    subscriptions = session.broker.service.subscriptions
    name = command.subscription
    saved = subscriptions.of(topic.id).get(name)
    if saved is None:
        starts = await _starts(session, command, topic, shard)
        if not topic.exists():
            raise RefusedCommand(ServerError.TOPIC_NOT_FOUND, f"logstore {topic.name} was deleted")
        settings = SubscriptionSettings(type=_TYPES[command.sub_type], is_durable=command.durable)
        # Another connection may have made it meanwhile.
        saved = subscriptions.of(topic.id).get(name) or subscriptions.create(topic.id, name, settings, starts)
    if saved.state.settings.is_durable is not command.durable:
        there = "is" if saved.state.settings.is_durable else "is not"
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR,
            f"a subscription {name!r} that {there} durable exists; use another name",
        )
    return saved


async def _starts(
    session: PulsarSession, command: wire.CommandSubscribe, topic: PulsarTopic, shard: int
) -> dict[int, ShardStart]:
    shards = topic.shards()
    if command.start_message_rollback_duration_sec:
        since_ms = session.broker.service.now_ms() - 1000 * command.start_message_rollback_duration_sec
        marks = {number: await topic.position_at(number, since_ms) for number in shards}
        return {
            number: replace(start, mark=marks[number])
            for number, start in topic.shards().items()
            if number in marks
        }
    if command.initial_position is InitialPosition.LATEST and command.durable:
        shards = {number: replace(start, mark=start.end) for number, start in shards.items()}
    start_id = command.start_message_id
    if start_id is not None and command.durable and shard in shards:
        shards[shard] = replace(shards[shard], mark=_mark(_start_of(start_id), shards[shard], topic, shard))
    return shards


async def _begin_reader(
    dispatch: Dispatch, entries: DispatchEntries, command: wire.CommandSubscribe, shard: int
) -> None:
    """A reader says for each shard where it begins, when it subscribes it for the first time. A shard that is
    born after the reader began begins at its first log."""
    starts = entries.topic.shards()
    if shard not in entries.unseeded or shard not in starts:
        return
    entries.unseeded.remove(shard)
    if command.start_message_rollback_duration_sec:
        return  # all shards begin at that time
    if command.start_message_id is not None:
        target = _start_of(command.start_message_id)
    else:
        target = LogBound.LATEST if command.initial_position is InitialPosition.LATEST else LogBound.EARLIEST
    dispatch.apply(SeekTo(shard=shard, position=_mark(target, starts[shard], entries.topic, shard)))


def _start_of(message: MessageIdData) -> int | LogBound:
    try:
        return ids.start_of(message)
    except BadId as error:
        raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, str(error)) from error


def _mark(target: int | LogBound, start: ShardStart, topic: PulsarTopic, shard: int) -> int:
    """Within what is there."""
    live = topic.shards().get(shard, start)
    match target:
        case LogBound.EARLIEST:
            return live.mark
        case LogBound.LATEST:
            return live.end
        case _:
            return min(max(target, live.mark), live.end)


# What a consumer sends


async def flow(session: PulsarSession, command: wire.CommandFlow) -> Complete | None:
    consumer = session.consumers.get(command.consumer_id)
    if consumer is not None and consumer.joined:
        consumer.dispatch.apply(Flow(consumer=consumer.number, permits=command.message_permits))
    return None


async def acknowledge(session: PulsarSession, acked: wire.CommandAck | AckedEntries) -> Complete | None:
    command, count = (acked, len(acked.message_id)) if isinstance(acked, wire.CommandAck) else acked[:2]
    consumer = session.consumer(command.consumer_id)
    if command.txnid_least_bits or command.txnid_most_bits:
        raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, "transactions are not offered")
    if count > session.broker.limits.ids:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR, f"an ACK names at most {session.broker.limits.ids} messages"
        )
    if command.ack_type is AckType.CUMULATIVE:
        await _acknowledge_up_to(consumer, command)
    elif consumer.joined:
        await _acknowledge(consumer, acked)
    if command.request_id is None:
        return None
    return _receipt(consumer, command.request_id)


async def _acknowledge(consumer: PulsarConsumer, acked: wire.CommandAck | AckedEntries) -> None:
    if isinstance(acked, AckedEntries):
        runs = await _runs_of_entries(consumer, acked.runs)
    else:
        runs = await _runs_of_ids(consumer, acked.message_id)
    if not _is_here(consumer):
        return
    rejected = consumer.dispatch.apply(Ack(shard=consumer.partition, runs=runs)).rejected
    if rejected:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR,
            f"{rejected} acknowledgements lie behind the last message, or need more ranges than are kept",
        )


async def _runs_of_entries(consumer: PulsarConsumer, entries: list[Run]) -> list[Run]:
    if not consumer.dispatch.is_ordered:
        return entries
    runs: list[Run] = []
    for first in (first for run in entries for first in range(*run)):
        logs = await consumer.entries.logs_at(consumer.partition, first)
        if logs:  # it has not expired
            runs.append((first, first + logs))
    return joined_runs(runs)


async def _runs_of_ids(consumer: PulsarConsumer, messages: tuple[MessageIdData, ...]) -> list[Run]:
    runs: list[Run] = []
    is_ordered = consumer.dispatch.is_ordered
    try:
        for message in messages:
            if is_ordered or message.ack_set:
                runs += ids.acknowledged(message, logs=await _logs_of(consumer, message))
            else:
                first = ids.entry_position(message)
                runs.append((first, first + 1))
    except BadId as error:
        raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, str(error)) from error
    return joined_runs(run for run in runs if run[0] < run[1])  # nothing of what has expired


async def _acknowledge_up_to(consumer: PulsarConsumer, command: wire.CommandAck) -> None:
    if not consumer.dispatch.is_ordered:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR,
            "a cumulative acknowledgement needs an Exclusive or a Failover subscription",
        )
    stop = 0
    try:
        for message in command.message_id:
            logs = 0 if message.entry_id == ids.BEFORE_FIRST else await _logs_of(consumer, message)
            stop = max(stop, ids.acknowledged_up_to(message, logs=logs))
    except BadId as error:
        raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, str(error)) from error
    if not _is_here(consumer):
        return
    outcome = consumer.dispatch.apply(AckUpTo(shard=consumer.partition, stop=stop))
    if outcome.refusal is not None:
        raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, outcome.refusal.value)
    if outcome.rejected:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR, "the acknowledgement lies behind the last message"
        )


def _is_here(consumer: PulsarConsumer) -> bool:
    """False if the shard was deleted meanwhile: its messages come no more. Raises RefusedCommand
    CONSUMER_NOT_FOUND if a SEEK of another consumer has closed the consumer: they come again."""
    if not consumer.is_open:
        raise RefusedCommand(
            ServerError.CONSUMER_NOT_FOUND, "the consumer was closed, by a SEEK of another one"
        )
    return consumer.joined


async def _logs_of(consumer: PulsarConsumer, message: MessageIdData) -> int:
    """How many logs the entry of an id has. A set of an id is of the ordered form, which the subscription
    may have had before."""
    first = ids.entry_position(message)
    if message.ack_set and not consumer.dispatch.is_ordered:
        # Bits behind the end of the batch stand for no logs.
        return min(message.batch_size or 64 * len(message.ack_set), group_end(first) - first)
    return await consumer.entries.logs_at(consumer.partition, first)


async def _receipt(consumer: PulsarConsumer, request_id: int) -> None:
    await consumer.dispatch.saved.durable()
    consumer.session.send(wire.CommandAckResponse(consumer_id=consumer.consumer_id, request_id=request_id))


async def redeliver(
    session: PulsarSession, command: wire.CommandRedeliverUnacknowledgedMessages
) -> Complete | None:
    consumer = session.consumers.get(command.consumer_id)
    if consumer is None or not consumer.joined:
        return None
    if len(command.message_ids) > session.broker.limits.ids:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR, f"at most {session.broker.limits.ids} messages at once"
        )
    if command.consumer_epoch is not None:
        consumer.epoch = command.consumer_epoch
    dispatch = consumer.dispatch
    runs: list[Run] | None = None
    if command.message_ids and not dispatch.is_ordered:
        try:
            firsts = [ids.entry_position(message) for message in command.message_ids]
        except BadId:
            return None  # not of ours, so it is not out
        runs = joined_runs((first, first + 1) for first in firsts)
    dispatch.apply(Redeliver(consumer=consumer.number, shard=consumer.partition, runs=runs))
    return None


async def close_consumer(session: PulsarSession, command: wire.CommandCloseConsumer) -> Complete | None:
    consumer = session.consumers.get(command.consumer_id)
    if consumer is not None:
        consumer.close()
    session.send(CommandSuccess(request_id=command.request_id))
    return None


async def unsubscribe(session: PulsarSession, command: wire.CommandUnsubscribe) -> Complete | None:
    """The subscription goes with its last consumer, when this is how all shards were left."""
    consumer = session.consumer(command.consumer_id)
    dispatch = consumer.dispatch
    others = _others_at(consumer)
    if others and not command.force:
        # Pulsar's code and words.
        raise RefusedCommand(
            ServerError.METADATA_ERROR, "Unconnected or shared consumer attempting to unsubscribe"
        )
    if command.force:
        if others:
            session.check_may(Access.ADMIN)
        dispatch.close_all(others)
    saved = dispatch.saved
    consumer.close()
    if not dispatch.consumers:
        session.broker.service.subscriptions.delete(dispatch.logs.id, saved.name)
        dispatch.end()  # a request may work with it, and another subscription may have the name next
    return _done(session, saved, command.request_id)


def _others_at(consumer: PulsarConsumer) -> list[int]:
    """The other consumers of the same shard, by their numbers. Consumers over HTTP have all shards."""
    return [
        other.number
        for other in consumer.dispatch.consumers.values()
        if other is not consumer
        and (not isinstance(other, PulsarConsumer) or other.partition == consumer.partition)
    ]


async def _done(session: PulsarSession, saved: SavedSubscription, request_id: int) -> None:
    await saved.durable()
    session.send(CommandSuccess(request_id=request_id))


async def seek(session: PulsarSession, command: wire.CommandSeek) -> Complete | None:
    """The consumers of the shard are closed first, and then SUCCESS is sent, as Pulsar does: clients ask
    the closed consumer otherwise."""
    consumer = session.consumer(command.consumer_id)
    dispatch, shard, topic = consumer.dispatch, consumer.partition, consumer.entries.topic
    target: int | LogBound
    if command.message_id is not None:
        try:
            target = ids.seek_target(command.message_id)
        except BadId as error:
            raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, str(error)) from error
    elif command.message_publish_time is not None:
        target = await topic.position_at(shard, command.message_publish_time)
    else:
        raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, "a SEEK names a message or a time")
    dispatch.refresh()
    start = topic.shards().get(shard)
    if start is None:  # it was deleted, or never existed
        dispatch.close_all((consumer.number, *_others_at(consumer)))
    else:
        dispatch.apply(SeekTo(shard=shard, position=_mark(target, start, topic, shard)))
    return _done(session, dispatch.saved, command.request_id)


async def last_message_id(session: PulsarSession, command: wire.CommandGetLastMessageId) -> Complete | None:
    consumer = session.consumer(command.consumer_id)
    return _last_message_id(consumer, command.request_id)


async def _last_message_id(consumer: PulsarConsumer, request_id: int) -> None:
    shard, dispatch = consumer.partition, consumer.dispatch
    session = consumer.session
    maximum = session.broker.limits.message_bytes
    newest = None
    if consumer.joined:
        newest = await consumer.entries.topic.last(
            shard, partial(_last_entry, is_ordered=dispatch.is_ordered, max_message_bytes=maximum)
        )
    if newest is None:
        last = mark = ids.no_message(shard)
    else:
        size = newest.batch_size
        last = ids.entry_id(
            position_of(newest.ordinal, newest.first),
            partition=shard,
            batch_index=-1 if size is None else size - 1,
            batch_size=size,
        )
        mark = await _mark_delete(consumer)
    session.send(
        wire.CommandGetLastMessageIdResponse(
            last_message_id=last, request_id=request_id, consumer_mark_delete_position=mark
        )
    )


def _last_entry(group: GroupToSend, *, is_ordered: bool, max_message_bytes: int) -> EntryToSend | None:
    """The last one that a frame can carry: what is left out never arrives, and clients would wait for it."""
    entries: Iterable[EntryToSend]
    if is_ordered:
        entries = reversed(ordered_entries(group, max_message_bytes=max_message_bytes))
    else:
        descending = range(group.logs - 1, -1, -1)
        entries = single_entries(group, descending, max_message_bytes=max_message_bytes)
    return next((entry for entry in entries if entry.data is not None), None)


async def _mark_delete(consumer: PulsarConsumer) -> MessageIdData:
    """The last entry that is wholly acknowledged, in the form in which entries are sent."""
    dispatch, shard = consumer.dispatch, consumer.partition
    cursor = dispatch.saved.state.shards[shard]
    mark, begin = cursor.acked.mark, consumer.entries.topic.shards()[shard].mark
    if mark <= begin:
        return ids.nothing_before(ordinal_of(begin), partition=shard)
    if not dispatch.is_ordered and index_of(mark):
        return ids.entry_id(mark - 1, partition=shard)
    entries = await consumer.entries.entries_of(shard, ordinal_of(mark - 1))
    before = [
        e for e in entries or () if position_of(e.ordinal, e.first + e.messages) <= mark or not index_of(mark)
    ]
    if not before:
        return ids.entry_id(position_of(ordinal_of(mark) - 1), partition=shard)
    return ids.entry_id(position_of(before[-1].ordinal, before[-1].first), partition=shard)


async def consumer_stats(session: PulsarSession, command: wire.CommandConsumerStats) -> Complete | None:
    consumer = session.consumer(command.consumer_id)
    state = consumer.dispatch.saved.state
    known = state.consumers.get(consumer.number)
    permits = 0 if known is None else max(0, known.permits)
    unacked = 0 if known is None else known.unacked
    session.send(
        wire.CommandConsumerStatsResponse(
            request_id=command.request_id,
            consumer_name=consumer.name,
            available_permits=permits,
            unacked_messages=unacked,
            address=session.client_host,
            type=_TYPE_NAMES.get(state.settings.type, state.settings.type.value),
        )
    )
    return None
