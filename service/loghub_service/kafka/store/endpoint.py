"""Puts the Kafka endpoint together from an open engine."""

import asyncio
import socket
from collections.abc import Iterable
from functools import partial

import structlog
from prometheus_client.core import Metric

from loghub_service.connections.frames import FrameResources
from loghub_service.connections.listener import HttpConnection
from loghub_service.connections.port import BrokerAddress, BrokerPort, Port
from loghub_service.connections.stalled import StalledClients
from loghub_service.connections.turns import in_turn
from loghub_service.engine import Engine
from loghub_service.http.server import Shared
from loghub_service.kafka.broker.answer import BrokerCounts, BrokerLimits
from loghub_service.kafka.broker.call import Broker, Decoding, budget_bytes
from loghub_service.kafka.broker.connection import KafkaConnection
from loghub_service.kafka.broker.fetch_session import SessionEntries
from loghub_service.kafka.broker.session import ClientSession
from loghub_service.kafka.store.log_service import EngineLogService
from loghub_service.kafka.store.metrics import LAG_INTERVAL_S, GroupLag, collect, collect_groups
from loghub_service.messages import MemoryBudget
from loghub_service.settings import AROUND_A_BATCH, KafkaLimits, KafkaSettings, Limits

_log = structlog.get_logger("loghub_service.kafka")


class KafkaEndpoint:
    """Serves a broker on a port, from `start` until `close`."""

    def __init__(
        self, engine: Engine, broker: Broker, port: Port, *, budgets: tuple[MemoryBudget, ...]
    ) -> None:
        """``budgets`` are for requests (the first one), answers and decoded batches."""
        self.broker = broker
        self.budgets = budgets
        self.lag = GroupLag(engine)
        self._engine = engine
        self._resources = FrameResources(
            limits=broker.limits,
            budget=budgets[0],
            holders=StalledClients(broker.clock, grace_s=broker.limits.send_grace_s),
            stalled=broker.stalled,
        )
        self._port = BrokerPort(port, broker.limits, self._connection)
        self.connections = self._port.connections
        self._measuring: asyncio.Task[None] | None = None

    def collect(self) -> Iterable[Metric]:
        """The metrics of the endpoint."""
        yield from collect(self.broker, self.connections)
        yield from collect_groups(self._engine, self.lag)

    async def _measure_lag(self) -> None:
        while True:
            try:
                await self.lag.refresh()
            except Exception:  # noqa: BLE001 - it is logged, and the next attempt may succeed
                _log.exception("lag of Kafka groups not measured")
            await asyncio.sleep(LAG_INTERVAL_S)

    def start(self) -> None:
        self._port.start()
        self._measuring = asyncio.get_running_loop().create_task(self._measure_lag())

    async def close(self) -> None:
        """Answer the requests in progress, for some seconds, and end all connections."""
        if self._measuring is not None:
            self._measuring.cancel()
        await self._port.close()

    def _connection(self, admitted: HttpConnection) -> KafkaConnection:
        return KafkaConnection(
            admitted,
            resources=self._resources,
            counts=self.broker.counts,
            make_session=lambda connection: self._session(connection, admitted),
            on_closed=lambda connection: self._port.closed(connection, admitted),
        )

    def _session(self, connection: KafkaConnection, admitted: HttpConnection) -> ClientSession:
        return ClientSession(
            self.broker,
            admitted,
            ends=self._port.opened(connection, admitted),
            admit=lambda key_id: self.connections.authenticated(admitted, key_id),
            memory=connection.memory,
        )


def broker_limits(limits: Limits, kafka: KafkaLimits) -> BrokerLimits:
    """The limits of Kafka clients, and the limits of the HTTP API where both have the same."""
    return BrokerLimits(
        connections=kafka.connections,
        frame_bytes=limits.body_bytes + AROUND_A_BATCH,
        group_bytes=limits.raw_bytes,
        login_s=limits.head_timeout_s,
        frame_s=limits.body_timeout_s,
        answer_s=limits.response_timeout_s,
        idle_s=kafka.idle_s,
        fetch_bytes=kafka.fetch_bytes,
    )


def endpoint_of(
    engine: Engine,
    settings: KafkaSettings,
    listening: socket.socket,
    shared: Shared,
    *,
    limits: BrokerLimits | None = None,
) -> KafkaEndpoint:
    """The endpoint, not started yet. Its limits follow from the service's limits unless they are given."""
    kafka = engine.settings.kafka_limits
    limits = limits or broker_limits(engine.settings.limits, kafka)
    # Budgets of their own: a client that uses these up disturbs no HTTP client.
    requests = MemoryBudget("kafka_requests", limit=kafka.request_bytes)
    answers = MemoryBudget("kafka_answers", limit=kafka.answer_bytes)
    decoded = MemoryBudget("kafka_produce", limit=budget_bytes(limits.group_bytes))
    broker = Broker(
        service=EngineLogService(engine, shared.find_key),
        groups=engine.kafka_groups,
        limits=limits,
        clock=engine.clock,
        answer_budget=answers,
        decoding=Decoding(decoded, partial(in_turn, engine.checking)),
        producers=engine.producers.producers,
        counts=BrokerCounts(),
        stalled=StalledClients(engine.clock, grace_s=limits.unread_grace_s),
        session_entries=SessionEntries(limits.session_partitions),
        turn=asyncio.Lock(),
    )
    advertised = None if settings.advertised is None else BrokerAddress(*settings.advertised)
    port = Port(listening=listening, tls=shared.tls, advertised=advertised)
    return KafkaEndpoint(engine, broker, port, budgets=(requests, answers, decoded))
