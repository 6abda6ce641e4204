"""The commands about topics: their partitions, where they are served, and their names.

A logstore is always a topic with partitions, even if it has one shard: a client that learned of no partitions
would never see a split. The number of partitions counts all shard ids that were ever given, so that it never
falls; an id whose shard is gone is a partition in which nothing arrives.
"""

import hashlib

from loghub.wire.names import bracketed
from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.connection import Complete
from loghub_service.pulsar.broker.names import check_namespace, parse_namespace, partition_name
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.broker.session import PulsarSession
from loghub_service.pulsar.broker.topic_pattern import TopicPattern, UnsupportedPattern
from loghub_service.pulsar.wire import topics as wire
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.session import CommandSuccess, CommandTcClientConnectRequest
from loghub_service.pulsar.wire.topics import LookupResult, PartitionsResult, TopicsMode

_SCHEME = "://"
LOOK_S = 1.0  # nothing notifies of names: a client learns of a split as late as this


async def partitions(
    session: PulsarSession, command: wire.CommandPartitionedTopicMetadata
) -> Complete | None:
    """The number of partitions of a topic; 0 for the name of a partition, which has none itself."""
    if command.metadata_auto_creation_enabled:
        named = await session.topic_or_new(command.topic, whole_first=True)
    else:
        named = session.topic(command.topic, whole_first=True)
    count = named.topic.partitions if named.partition is None else 0
    session.send(
        wire.CommandPartitionedTopicMetadataResponse(
            partitions=count, request_id=command.request_id, response=PartitionsResult.SUCCESS
        )
    )
    return None


async def lookup(session: PulsarSession, command: wire.CommandLookupTopic) -> Complete | None:
    """Answer that this broker serves the topic, as it serves every topic."""
    await session.topic_or_new(command.topic)
    place = f"{bracketed(session.address.host)}:{session.address.port}"
    is_tls = session.broker.is_tls
    session.send(
        wire.CommandLookupTopicResponse(
            broker_service_url=None if is_tls else f"pulsar://{place}",
            broker_service_url_tls=f"pulsar+ssl://{place}" if is_tls else None,
            response=LookupResult.CONNECT,
            request_id=command.request_id,
        )
    )
    return None


async def topics_of_namespace(
    session: PulsarSession, command: wire.CommandGetTopicsOfNamespace
) -> Complete | None:
    """List all topics: clients compare the names with a pattern themselves."""
    found = () if command.mode is TopicsMode.NON_PERSISTENT else _names(session, command.namespace)
    digest = names_hash(found)
    changed = command.topics_hash != digest
    session.send(
        wire.CommandGetTopicsOfNamespaceResponse(
            request_id=command.request_id,
            topics=found if changed else (),
            topics_hash=digest,
            changed=changed,
        )
    )
    return None


def _names(session: PulsarSession, namespace: str) -> tuple[str, ...]:
    """The names of topics, one name for each partition, as Pulsar lists them."""
    place = parse_namespace(namespace)
    check_namespace(place, session.login.project)
    return tuple(
        partition_name(place, topic.name, partition)
        for topic in session.login.topics()
        for partition in range(topic.partitions)
    )


def names_hash(names: tuple[str, ...]) -> str:
    """A hash of a list of names, which is all that a client compares: equal lists have equal hashes."""
    return hashlib.blake2b(",".join(sorted(names)).encode(), digest_size=8).hexdigest()


class TopicWatcher:
    """Tells a client which topics of a namespace come and go."""

    def __init__(self, session: PulsarSession, command: wire.CommandWatchTopicList) -> None:
        self._session = session
        self._watcher_id = command.watcher_id
        self._namespace = command.namespace
        _, separator, pattern = command.topics_pattern.partition(_SCHEME)
        self._pattern = TopicPattern(pattern if separator else command.topics_pattern)
        self.names = self._matching()
        self.project = session.login.project
        session.broker.watchers[self] = None

    def topics(self) -> object:
        """Another value whenever topics of the project, or their partitions, come and go."""
        return tuple((topic.id, topic.partitions) for topic in self._session.login.topics())

    def close(self) -> None:
        self._session.broker.watchers.pop(self, None)

    def _matching(self) -> tuple[str, ...]:
        names = _names(self._session, self._namespace)
        return tuple(name for name in names if self._pattern.matches(name.partition(_SCHEME)[2]))

    def look(self) -> None:
        """Compare the topics with what the client knows, and tell it what has changed."""
        try:
            names = self._matching()
        except RefusedCommand:
            return  # the project was deleted
        known, self.names = set(self.names), names
        new, gone = set(names) - known, known - set(names)
        if new or gone:
            self._session.send(
                wire.CommandWatchTopicUpdate(
                    watcher_id=self._watcher_id,
                    new_topics=tuple(sorted(new)),
                    deleted_topics=tuple(sorted(gone)),
                    topics_hash=names_hash(names),
                )
            )


class WatchedNames:
    """The names of all topics that are watched. Call `look` every `LOOK_S`: it compares once for a project,
    and only what has changed costs more than that."""

    def __init__(self, broker: PulsarBroker) -> None:
        self._broker = broker
        self._names: dict[str, object] = {}  # by project, as the watchers there know them

    def look(self) -> None:
        watchers = tuple(self._broker.watchers)
        names = {}
        for watcher in watchers:
            if watcher.project not in names:
                names[watcher.project] = watcher.topics()
        for watcher in watchers:
            if self._names.get(watcher.project) != names[watcher.project]:
                watcher.look()
        self._names = names


async def watch_topics(session: PulsarSession, command: wire.CommandWatchTopicList) -> Complete | None:
    session.check_room()
    if command.watcher_id in session.watchers:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR, f"the connection has a watcher {command.watcher_id} already"
        )
    try:
        watcher = TopicWatcher(session, command)
    except UnsupportedPattern as error:
        raise RefusedCommand(
            ServerError.NOT_ALLOWED_ERROR,
            f"topics cannot be watched with this pattern, list them instead: {error}",
        ) from error
    session.watchers[command.watcher_id] = watcher
    session.send(
        wire.CommandWatchTopicListSuccess(
            request_id=command.request_id,
            watcher_id=command.watcher_id,
            topic=watcher.names,
            topics_hash=names_hash(watcher.names),
        )
    )
    return None


async def watch_no_more(session: PulsarSession, command: wire.CommandWatchTopicListClose) -> Complete | None:
    watcher = session.watchers.pop(command.watcher_id, None)
    if watcher is not None:
        watcher.close()
    session.send(CommandSuccess(request_id=command.request_id))
    return None


async def no_transactions(
    session: PulsarSession,  # noqa: ARG001 - every command gets it
    command: CommandTcClientConnectRequest,  # noqa: ARG001
) -> Complete | None:
    raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, "transactions are not offered")
