"""The port of the Kafka endpoint: its listener, its connections, and their end with the service."""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass

import structlog
from prometheus_client.core import Metric

from loghub.kafka.broker.calls import Address, Broker
from loghub.kafka.broker.connection import KafkaConnection, Resources
from loghub.kafka.broker.session import ClientSession
from loghub.kafka.broker.stalled import StalledClients
from loghub.service.engine import Engine
from loghub.service.http.connections import Connection, Connections
from loghub.service.http.listener import Listener
from loghub.service.kafka.lag import LAG_INTERVAL_S, GroupLag
from loghub.service.kafka.metrics import collect, collect_groups
from loghub.service.memory import MemoryBudget

_log = structlog.get_logger("loghub.kafka")
_MAPPED = "::ffff:"  # begins an IPv4 address on a socket for both families


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A listening socket, and how clients find it; ``advertised`` None is where each one connected."""

    listening: socket.socket
    tls: ssl.SSLContext | None
    advertised: Address | None


class KafkaEndpoint:
    """Serves a broker on a port, from `start` until `close`."""

    def __init__(
        self, engine: Engine, broker: Broker, port: Port, *, budgets: tuple[MemoryBudget, ...]
    ) -> None:
        """The budgets are of requests, the first of them, of answers and of decoded batches."""
        self.broker = broker
        self.connections = Connections(broker.limits.connections)
        self.budgets = budgets
        self.lag = GroupLag(engine)
        self._engine = engine
        self._port = port
        self._resources = Resources(
            limits=broker.limits,
            budget=budgets[0],
            holders=StalledClients(broker.clock, grace_s=broker.limits.send_grace_s),
            stalled=broker.stalled,
            counts=broker.counts,
        )
        self._open: set[KafkaConnection] = set()
        self._measuring: asyncio.Task[None] | None = None
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._listener = Listener(
            port.listening, connections=self.connections, make_protocol=self._protocol, tls=port.tls
        )

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
        self._listener.start()
        self._measuring = asyncio.get_running_loop().create_task(self._measure_lag())

    async def close(self) -> None:
        """Answer what is in progress, for some seconds, and end all connections."""
        self._listener.close()
        if self._measuring is not None:
            self._measuring.cancel()
        for connection in tuple(self._open):
            connection.finish()
        try:
            async with asyncio.timeout(self.broker.limits.close_s):
                await self._all_closed.wait()
        except TimeoutError:
            for connection in tuple(self._open):
                connection.abort()
            await self._all_closed.wait()

    def _protocol(self, admitted: Connection) -> KafkaConnection:
        return KafkaConnection(
            admitted,
            resources=self._resources,
            make_session=lambda connection: self._session(connection, admitted),
            on_closed=lambda connection: self._closed(connection, admitted),
        )

    def _session(self, connection: KafkaConnection, admitted: Connection) -> ClientSession:
        self._open.add(connection)
        self._all_closed.clear()
        transport = connection.transport
        admitted.abort = transport.abort
        here, there = (transport.get_extra_info(name) or ("", 0) for name in ("sockname", "peername"))
        return ClientSession(
            self.broker,
            admitted,
            address=self._port.advertised or Address(here[0].removeprefix(_MAPPED), here[1]),
            client_host=there[0].removeprefix(_MAPPED),
            admit=lambda key_id: self.connections.authenticated(admitted, key_id),
            memory=connection.memory,
        )

    def _closed(self, connection: KafkaConnection, admitted: Connection) -> None:
        self.connections.forget(admitted)
        self._open.discard(connection)
        if not self._open:
            self._all_closed.set()
