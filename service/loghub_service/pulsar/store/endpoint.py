"""Puts the Pulsar endpoint together from an open engine."""

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
from loghub_service.connections.turns import DecodingTurns, in_turn
from loghub_service.dispatch.driver import Dispatches
from loghub_service.engine import Engine
from loghub_service.http.server import Shared
from loghub_service.messages import MemoryBudget
from loghub_service.pulsar.broker.call import (
    EntryCache,
    LoggedRefusals,
    PulsarBroker,
    PulsarBrokerLimits,
    PulsarCounts,
)
from loghub_service.pulsar.broker.connection import PulsarConnection
from loghub_service.pulsar.broker.handlers import HANDLERS
from loghub_service.pulsar.broker.lookup import LOOK_S, WatchedNames
from loghub_service.pulsar.broker.producer import TopicProducers
from loghub_service.pulsar.broker.producers import decoding_budget_bytes
from loghub_service.pulsar.broker.session import PulsarSession, SessionPeer
from loghub_service.pulsar.store.log_service import EnginePulsarService
from loghub_service.pulsar.store.metrics import collect
from loghub_service.pulsar.wire.frames import FRAME_MARGIN_BYTES
from loghub_service.settings import Limits, PulsarLimits, PulsarSettings

_log = structlog.get_logger("loghub_service.pulsar")


class PulsarEndpoint:
    """Serves a broker on a port, from `start` until `close`."""

    def __init__(
        self, broker: PulsarBroker, port: Port, dispatches: Dispatches, *, budgets: tuple[MemoryBudget, ...]
    ) -> None:
        """The budgets are, in this order, for requests, for messages, and for sends that are decoded."""
        self.broker = broker
        self.budgets = budgets
        self._resources = FrameResources(
            limits=broker.limits,
            budget=budgets[0],
            holders=StalledClients(broker.clock, grace_s=broker.limits.send_grace_s),
            stalled=broker.stalled,
        )
        self._port = BrokerPort(port, broker.limits, self._connection)
        self.connections = self._port.connections
        self.dispatches = dispatches
        self.producers = TopicProducers()
        self._looking: asyncio.Task[None] | None = None

    def collect(self) -> Iterable[Metric]:
        """The metrics of the endpoint."""
        return collect(self.broker, self.dispatches, self.connections)

    def start(self) -> None:
        self._port.start()
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        watched = WatchedNames(self.broker)
        while True:
            try:
                watched.look()
            except Exception:  # noqa: BLE001 - it is logged, and the next attempt may succeed
                _log.exception("changes of topics not noticed")
            await asyncio.sleep(LOOK_S)

    async def close(self) -> None:
        """Answer what is in progress, for some seconds, and end all connections."""
        if self._looking is not None:
            self._looking.cancel()
        await self._port.close()

    def _connection(self, admitted: HttpConnection) -> PulsarConnection:
        return PulsarConnection(
            admitted,
            broker=self.broker,
            resources=self._resources,
            make_session=lambda connection: self._session(connection, admitted),
            on_closed=lambda connection: self._port.closed(connection, admitted),
        )

    def _session(self, connection: PulsarConnection, admitted: HttpConnection) -> PulsarSession:
        peer = SessionPeer(
            admitted=admitted,
            ends=self._port.opened(connection, admitted),
            admit=lambda key_id: self.connections.authenticated(admitted, key_id),
        )
        return PulsarSession(
            self.broker,
            peer,
            connection,
            handlers=HANDLERS,
            dispatches=self.dispatches,
            topic_producers=self.producers,
        )


def pulsar_broker_limits(limits: Limits, pulsar: PulsarLimits) -> PulsarBrokerLimits:
    """The limits of Pulsar clients, with the limits of the HTTP API where both have the same limit."""
    return PulsarBrokerLimits(
        connections=pulsar.connections,
        message_bytes=pulsar.message_bytes,
        frame_bytes=pulsar.message_bytes + FRAME_MARGIN_BYTES,
        group_bytes=limits.raw_bytes,
        login_s=limits.head_timeout_s,
        frame_s=limits.body_timeout_s,
        answer_s=limits.response_timeout_s,
    )


def pulsar_endpoint_of(
    engine: Engine,
    settings: PulsarSettings,
    listening: socket.socket,
    shared: Shared,
    *,
    limits: PulsarBrokerLimits | None = None,
) -> PulsarEndpoint:
    """The endpoint, not started yet. Its limits follow from the service unless they are given."""
    pulsar = engine.settings.pulsar_limits
    limits = limits or pulsar_broker_limits(engine.settings.limits, pulsar)
    # Budgets apart from HTTP and Kafka: a client that uses them up disturbs no client of these.
    requests = MemoryBudget("pulsar_requests", limit=pulsar.request_bytes)
    messages = MemoryBudget("pulsar_messages", limit=pulsar.answer_bytes)
    decoded = MemoryBudget("pulsar_sends", limit=decoding_budget_bytes(limits.group_bytes))
    broker = PulsarBroker(
        service=EnginePulsarService(engine, shared.find_key),
        limits=limits,
        clock=engine.clock,
        answer_budget=messages,
        stalled=StalledClients(engine.clock, grace_s=limits.unread_grace_s),
        counts=PulsarCounts(),
        cache=EntryCache(limits.cache_bytes),
        refused=LoggedRefusals(engine.clock),
        sequences=engine.producers.sequences,
        decoding=DecodingTurns(decoded, partial(in_turn, engine.checking)),
        numbers=engine.dispatches.numbers,
        auto_create=settings.auto_create,
        is_tls=shared.tls is not None,
    )
    advertised = None if settings.advertised is None else BrokerAddress(*settings.advertised)
    port = Port(listening=listening, tls=shared.tls, advertised=advertised)
    return PulsarEndpoint(broker, port, engine.dispatches, budgets=(requests, messages, decoded))
