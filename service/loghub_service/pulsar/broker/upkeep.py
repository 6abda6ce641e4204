"""What a broker looks at now and then: shards that were split, merged or deleted, and names that come and go.

Nothing notifies it, so it compares once in a second: each topic once, however many subscriptions it has. Only
what has changed costs more than that.
"""

from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.dispatch import Dispatches

INTERVAL_S = 1.0  # a consumer notices a split as late as this


class Upkeep:
    """Call `look` every `INTERVAL_S`."""

    def __init__(self, broker: PulsarBroker, dispatches: Dispatches) -> None:
        self._broker = broker
        self._dispatches = dispatches
        self._topics: dict[int, object] = {}  # by id, as the subscriptions know them
        self._names: dict[str, object] = {}  # by project, as the watchers there know them

    def look(self) -> None:
        topics: dict[int, object] = {}
        for dispatch in self._dispatches:
            topic = dispatch.topic
            if topic.id not in topics:
                topics[topic.id] = topic.changes()
            if topic.id not in self._topics or self._topics[topic.id] != topics[topic.id]:
                dispatch.refresh()
        self._topics = topics
        watchers = tuple(self._broker.watchers)
        names = {}
        for watcher in watchers:
            if watcher.project not in names:
                names[watcher.project] = watcher.topics()
        for watcher in watchers:
            if self._names.get(watcher.project) != names[watcher.project]:
                watcher.look()
        self._names = names
