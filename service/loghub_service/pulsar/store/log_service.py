"""The log service behind the Pulsar endpoint: the same access keys, rights and logstores as over HTTP."""

from collections.abc import Mapping

from loghub_service.access_keys import AccessKey, FindKey, KeyLogin, key_of_password
from loghub_service.catalog import Logstore
from loghub_service.engine import Engine
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.store import topics
from loghub_service.pulsar.store.topics import LogstoreWithShards
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.subscription.events import ShardStart
from loghub_service.subscription.state import SubscriptionSettings
from loghub_service.subscription_registry import (
    RegisteredSubscription,
    SubscriptionRegistry,
    TooManySubscriptions,
)

_NAME_DIGITS = 16  # hexadecimal: no two producers ever get the same


class EngineSubscriptions:
    """A `loghub_service.pulsar.broker.store.Subscriptions` over the registry of the engine."""

    def __init__(self, registry: SubscriptionRegistry) -> None:
        self._registry = registry

    def of(self, topic: int) -> Mapping[str, RegisteredSubscription]:
        return self._registry.of(topic)

    def create(
        self, topic: int, name: str, settings: SubscriptionSettings, shards: Mapping[int, ShardStart]
    ) -> RegisteredSubscription:
        try:
            return self._registry.create(topic, name, settings, shards)
        except TooManySubscriptions as error:
            raise RefusedCommand(ServerError.NOT_ALLOWED_ERROR, str(error)) from error

    def delete(self, topic: int, name: str) -> None:
        self._registry.forget(topic, name)


class EnginePulsarService:
    """A `loghub_service.pulsar.broker.store.PulsarLogService` over one engine."""

    def __init__(self, engine: Engine, find_key: FindKey) -> None:
        self.subscriptions = EngineSubscriptions(engine.subscriptions)
        self._engine = engine
        self._find_key = find_key

    def login(self, project: str, password: str) -> "PulsarProjectLogin | None":
        project = project.lower()  # as over HTTP, where a host name has no case
        key = key_of_password(self._find_key, project, password, unix_s=self._engine.clock.unix_s())
        return None if key is None else PulsarProjectLogin(self._engine, self._find_key, project, key)

    def new_producer_name(self) -> str:
        """Random, so that no state has to be kept for it."""
        return f"loghub-{self._engine.random.hex(_NAME_DIGITS)}"

    def now_ms(self) -> int:
        return self._engine.now_us() // 1000


class PulsarProjectLogin(KeyLogin):
    """An access key in one project, whose logstores are topics."""

    def __init__(self, engine: Engine, find_key: FindKey, project: str, key: AccessKey) -> None:
        super().__init__(find_key, project, key, engine.clock)
        self._engine = engine

    def topics(self) -> tuple[LogstoreWithShards, ...]:
        return tuple(
            LogstoreWithShards(self._engine, store) for _, store in sorted(self._logstores().items())
        )

    def topic(self, name: str) -> LogstoreWithShards | None:
        store = self._logstores().get(name)
        return None if store is None else LogstoreWithShards(self._engine, store)

    def _logstores(self) -> dict[str, Logstore]:
        project = self._engine.catalog.projects.get(self.project)
        return {} if project is None else project.logstores

    async def create_topic(self, name: str) -> None:
        await topics.create_topic(self._engine, self.project, name)
