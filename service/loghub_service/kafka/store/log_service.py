"""The log service behind the Kafka endpoint: the same access keys, rights and logstores as over HTTP."""

from loghub_service.access_keys import AccessKey, FindKey, KeyLogin, key_of_password
from loghub_service.api import logstores
from loghub_service.catalog import Logstore
from loghub_service.engine import Engine
from loghub_service.kafka.broker.store import NewTopic, Topic
from loghub_service.kafka.store import topics
from loghub_service.kafka.store.topics import LogstoreTopic, as_store_errors
from loghub_service.polls import LogWatch

_PRODUCER_DIGITS = 15  # hexadecimal; a producer id has 63 bits


class EngineLogService:
    """A `loghub_service.kafka.broker.store.LogService` over one engine."""

    def __init__(self, engine: Engine, find_key: FindKey) -> None:
        self._engine = engine
        self._find_key = find_key

    def login(self, project: str, password: str) -> "ProjectLogin | None":
        project = project.lower()  # as over HTTP, where a host name has no case
        key = key_of_password(self._find_key, project, password, unix_s=self._engine.clock.unix_s())
        return None if key is None else ProjectLogin(self._engine, self._find_key, project, key)

    def watch(self) -> LogWatch:
        return self._engine.log_changes.watch()

    def now_ms(self) -> int:
        return self._engine.now_us() // 1000

    def new_producer_id(self) -> int:
        """Random, so that no counter has to be persisted."""
        return int(self._engine.random.hex(_PRODUCER_DIGITS), 16)


class ProjectLogin(KeyLogin):
    """An access key in one project, whose logstores are topics."""

    def __init__(self, engine: Engine, find_key: FindKey, project: str, key: AccessKey) -> None:
        super().__init__(find_key, project, key, engine.clock)
        self._engine = engine

    def topics(self) -> tuple[Topic, ...]:
        return tuple(LogstoreTopic(self._engine, store) for _, store in sorted(self._logstores().items()))

    def topic(self, name: str) -> Topic | None:
        store = self._logstores().get(name)
        return None if store is None else LogstoreTopic(self._engine, store)

    def _logstores(self) -> dict[str, Logstore]:
        project = self._engine.catalog.projects.get(self.project)
        return {} if project is None else project.logstores

    # A connection that ends cancels its requests, but an action that has begun must be completed.

    async def create_topic(self, new: NewTopic, *, check_only: bool) -> None:
        create = topics.create_topic(self._engine, self.project, new, check_only=check_only)
        await self._engine.to_the_end(create)

    async def delete_topic(self, name: str) -> None:
        with as_store_errors():
            await self._engine.to_the_end(logstores.delete(self._engine, self.project, name))

    async def add_partitions(self, name: str, total: int, *, check_only: bool) -> None:
        split = topics.add_partitions(self._engine, self.project, name, total, check_only=check_only)
        await self._engine.to_the_end(split)
