"""What a broker looks at now and then: names of topics that come and go.

Nothing notifies it, so it compares once in a second, and only what has changed costs more than that.
"""

from loghub_service.pulsar.broker.call import PulsarBroker

INTERVAL_S = 1.0  # a consumer notices a split as late as this


class Upkeep:
    """Call `look` every `INTERVAL_S`."""

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
