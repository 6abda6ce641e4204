"""Puts the Kafka endpoint together from an open engine."""

import asyncio
import socket
import ssl
from dataclasses import dataclass
from functools import partial

from loghub.kafka.broker.calls import Address, Broker
from loghub.kafka.broker.counts import BrokerCounts
from loghub.kafka.broker.decoding import Decoding, budget_bytes
from loghub.kafka.broker.fetch_session import SessionEntries
from loghub.kafka.broker.limits import BrokerLimits
from loghub.kafka.broker.stalled import StalledClients
from loghub.service.engine import Engine
from loghub.service.kafka.endpoint import KafkaEndpoint, Port
from loghub.service.kafka.log_service import EngineLogService, FindKey
from loghub.service.memory import MemoryBudget
from loghub.service.settings import AROUND_A_BATCH, KafkaLimits, KafkaSettings, Limits
from loghub.service.turns import in_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the endpoint shares with the HTTP API."""

    find_key: FindKey
    tls: ssl.SSLContext | None


def broker_limits(limits: Limits, kafka: KafkaLimits) -> BrokerLimits:
    """Those of Kafka clients alone, and those of the HTTP API where both have the same."""
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
    """The endpoint, not started yet. Its limits follow from those of the service unless they are given."""
    kafka = engine.settings.kafka_limits
    limits = limits or broker_limits(engine.settings.limits, kafka)
    # Not those of HTTP: a client that uses these up disturbs no HTTP client.
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
    advertised = None if settings.advertised is None else Address(*settings.advertised)
    port = Port(listening=listening, tls=shared.tls, advertised=advertised)
    return KafkaEndpoint(engine, broker, port, budgets=(requests, answers, decoded))
