"""KEDA's external-push scaler: ``externalscaler.ExternalScaler`` over gRPC.

A ScaledObject scales a group on one of its metrics, and KEDA is notified as soon as logs wait to be
consumed. A trigger can only refer to groups of its ScaledObject's namespace. An unknown value is an
error (UNAVAILABLE), never 0: KEDA then keeps the number of workers. StreamMetricSpec is not
implemented, which the interface allows: a trigger's target never changes by itself.
"""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from loghub_operator.autoscaling.keda import messages as wire
from loghub_operator.autoscaling.keda.trigger import BadTriggerError, KedaTrigger, trigger_of
from loghub_operator.autoscaling.metric_catalog import current_value, is_active
from loghub_operator.autoscaling.tls.key_pair import KeyFolder, KeyPair
from loghub_operator.metrics.store import MetricsStore, UnknownGroupError, UnknownValueError

MAX_CALLS = 4096  # streams and unary calls together; further ones are rejected
MAX_STREAMS = 2048
MAX_MESSAGE_BYTES = 64 * 1024
STOP_BOUND_S = 1.0
_CODES = {
    BadTriggerError: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownGroupError: grpc.StatusCode.NOT_FOUND,
    UnknownValueError: grpc.StatusCode.UNAVAILABLE,
}
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", MAX_CALLS),
    # Detect a peer that is gone, and end its streams.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
)


class Scaler:
    """The methods of the gRPC service."""

    def __init__(self, store: MetricsStore) -> None:
        self._store = store
        self._streams = 0

    async def is_active(self, request: Any, context: Any) -> Any:
        """Whether logs wait to be consumed."""
        async with _abort_on_error(context):
            return wire.IsActiveResponse(result=self._active(_trigger(request)))

    async def stream_is_active(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Whether logs wait to be consumed, now and at each change. Sends nothing while that is unknown."""
        if self._streams >= MAX_STREAMS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"more than {MAX_STREAMS} streams")
        self._streams += 1
        try:
            async with _abort_on_error(context):
                async for active in self._changes(_trigger(request)):
                    yield wire.IsActiveResponse(result=active)
        finally:
            self._streams -= 1

    async def get_metric_spec(self, request: Any, context: Any) -> Any:
        """The metric's name and target. The group does not have to exist yet."""
        async with _abort_on_error(context):
            trigger = _trigger(request)
        size = math.ceil(trigger.target)
        spec = {
            "metricName": trigger.definition.metric,
            "targetSize": size,
            "targetSizeFloat": trigger.target,
        }
        return wire.GetMetricSpecResponse(metricSpecs=[spec])

    async def get_metrics(self, request: Any, context: Any) -> Any:
        """The metric's current value."""
        async with _abort_on_error(context):
            value = self._number(_trigger(request.scaledObjectRef), request.metricName)
        metric_value = {
            "metricName": request.metricName,
            "metricValue": math.ceil(value),
            "metricValueFloat": value,
        }
        return wire.GetMetricsResponse(metricValues=[metric_value])

    def _active(self, trigger: KedaTrigger) -> bool:
        return is_active(self._store.read(trigger.namespace, trigger.group), above=trigger.activation)

    def _number(self, trigger: KedaTrigger, metric: str) -> float:
        if metric != trigger.definition.metric:
            raise BadTriggerError(
                f"this trigger provides metric {trigger.definition.metric}, not {metric!r:.80}"
            )
        return current_value(trigger.definition, self._store.read(trigger.namespace, trigger.group))

    async def _changes(self, trigger: KedaTrigger) -> AsyncIterator[bool]:
        last_sent: bool | None = None
        with self._store.listening(trigger.namespace, trigger.group) as event:
            while True:
                event.clear()
                active = self._active_if_known(trigger)
                if active is not None and active != last_sent:
                    last_sent = active
                    yield active
                await event.wait()

    def _active_if_known(self, trigger: KedaTrigger) -> bool | None:
        try:
            return self._active(trigger)
        except UnknownValueError:
            return None

    def handlers(self) -> Any:
        """The handlers to add to a gRPC server."""
        deserialize, serialize = wire.ScaledObjectRef.FromString, _serialize
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "IsActive": unary(self.is_active, deserialize, serialize),
            "StreamIsActive": stream(self.stream_is_active, deserialize, serialize),
            "GetMetricSpec": unary(self.get_metric_spec, deserialize, serialize),
            "GetMetrics": unary(self.get_metrics, wire.GetMetricsRequest.FromString, serialize),
        }
        return grpc.method_handlers_generic_handler(wire.SERVICE, methods)


def _serialize(message: Any) -> bytes:
    serialized: bytes = message.SerializeToString()
    return serialized


def _trigger(request: Any) -> KedaTrigger:
    return trigger_of(request.namespace, request.scalerMetadata)


@asynccontextmanager
async def _abort_on_error(context: Any) -> AsyncIterator[None]:
    try:
        yield
    except tuple(_CODES) as error:
        await context.abort(_CODES[type(error)], str(error))


@asynccontextmanager
async def serving_keda(
    address: str, store: MetricsStore, *, keys: KeyFolder | None = None
) -> AsyncIterator[str]:
    """Serve at ``host:port`` for the duration of the block, and yield the actual address.

    Without a host, it serves at every address of both families; gRPC opens its sockets itself. Port 0 chooses
    a free port. With ``keys``, the server uses TLS; with a ``ca.crt`` among them, it accepts
    only clients whose certificate that CA signed. Raises OSError if the server cannot listen.
    """
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MAX_CALLS)
    server.add_generic_rpc_handlers((Scaler(store).handlers(),))
    host, _, given_port = address.rpartition(":")
    try:
        port = _listen(server, f"{host or '[::]'}:{given_port}", keys)
    except RuntimeError as error:  # the library raises nothing more specific if the port is in use
        raise OSError(f"cannot listen on {address}: {error}") from error
    await server.start()
    try:
        yield f"{host}:{port}"
    finally:
        await server.stop(STOP_BOUND_S)


def _listen(server: Any, address: str, keys: KeyFolder | None) -> int:
    if keys is None:
        return int(server.add_insecure_port(address))
    first = keys.read()
    renewed = grpc.dynamic_ssl_server_credentials(
        _configuration(first), lambda: _renewed(keys), require_client_authentication=first.ca is not None
    )
    return int(server.add_secure_port(address, renewed))


def _renewed(keys: KeyFolder) -> Any:
    """The certificate for the next handshake; None keeps the previous certificate, for example while the
    folder is being replaced."""
    try:
        return _configuration(keys.read())
    except OSError:
        return None


def _configuration(pair: KeyPair) -> Any:
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.certificate)], pair.ca)
