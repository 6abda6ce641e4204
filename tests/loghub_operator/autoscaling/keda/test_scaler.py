"""The external scaler over a real gRPC connection; the bytes are written here by hand.

Names and numbers are those of KEDA's externalscaler.proto (v2.21); `test_keda_client` queries with
KEDA's own generated client.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from loghub_operator.autoscaling import keda
from loghub_operator.autoscaling.certificates import KeyFolder
from loghub_operator.autoscaling.keda import serving_keda
from loghub_operator.metrics.store import MetricsStore
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_operator.support.group_metrics import HandClock, readings, store

GUARD_S = 120.0
YES, NO = b"\x08\x01", b""  # IsActiveResponse; proto3 leaves a false out
Ask = Callable[..., Awaitable[bytes]]


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def ref(namespace: str = "shop", **metadata: str) -> bytes:
    """ScaledObjectRef: name 1, namespace 2, map scalerMetadata 3 of entries key 1, value 2."""
    entries = (
        field(3, field(1, key.encode()) + field(2, value.encode()))
        for key, value in ({"consumerGroup": "access"} | metadata).items()
    )
    return field(1, b"an-object") + field(2, namespace.encode()) + b"".join(entries)


def metric(name: str, *, whole: int, exact: float) -> bytes:
    """MetricSpec and MetricValue alike: name 1, whole number 2 (varint), double 3."""
    assert whole < 128
    return field(1, name.encode()) + bytes([2 << 3, whole]) + bytes([3 << 3 | 1]) + struct.pack("<d", exact)


async def once(channel: grpc.aio.Channel, method: str, request: bytes) -> bytes:
    answer = await channel.unary_unary(f"/externalscaler.ExternalScaler/{method}")(request, timeout=GUARD_S)
    assert isinstance(answer, bytes)
    return answer


def stream(channel: grpc.aio.Channel, request: bytes) -> grpc.aio.UnaryStreamCall:
    return channel.unary_stream("/externalscaler.ExternalScaler/StreamIsActive")(request, timeout=GUARD_S)


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


def over(on: MetricsStore, story: Callable[[grpc.aio.Channel], Awaitable[None]]) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(GUARD_S),
            serving_keda("127.0.0.1:0", on) as address,
            grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel,
        ):
            await story(channel)

    asyncio.run(run())


def test_active_while_there_is_lag() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        assert await once(channel, "IsActive", ref()) == YES
        assert await once(channel, "IsActive", ref(activationLagLogGroups="1200")) == NO
        on.update(readings(lag_groups=0), ())
        assert await once(channel, "IsActive", ref()) == NO

    on = store(readings())
    over(on, story)


def test_spec_and_value_of_a_metric() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        by_lag = ref(metric="lagSeconds", targetValue="2.5")
        spec = field(1, metric("loghub_lag_seconds", whole=3, exact=2.5))
        assert await once(channel, "GetMetricSpec", by_lag) == spec
        value = field(1, metric("loghub_lag_seconds", whole=43, exact=42.25))
        question = field(1, by_lag) + field(2, b"loghub_lag_seconds")
        assert await once(channel, "GetMetrics", question) == value
        wanted = field(1, metric("loghub_desired_workers", whole=1, exact=1.0))
        assert await once(channel, "GetMetricSpec", ref()) == wanted
        value = field(1, metric("loghub_desired_workers", whole=2, exact=2.0))
        assert (
            await once(channel, "GetMetrics", field(1, ref()) + field(2, b"loghub_desired_workers")) == value
        )

    over(store(readings()), story)


def test_unknown_group_and_unknown_number_are_errors() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        question = field(2, b"loghub_desired_workers")
        for call in (
            once(channel, "IsActive", ref("other")),
            once(channel, "GetMetrics", field(1, ref("other")) + question),
            stream(channel, ref("other")).read(),
        ):
            code, message = await refused(call)
            assert code is grpc.StatusCode.NOT_FOUND
            assert "no LogHubConsumerGroup access in namespace other" in message
        on.update(readings(wanted=None, lag_groups=None, assignable=None), ())
        for call in (
            once(channel, "IsActive", ref()),
            once(channel, "GetMetrics", field(1, ref()) + question),
        ):
            code, message = await refused(call)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert "shop/access is currently unknown" in message
        # The target does not depend on what is known.
        assert await once(channel, "GetMetricSpec", ref("other"))

    on = store(readings())
    over(on, story)


def test_stale_metrics_are_unavailable() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        clock.now += 61.0
        code, message = await refused(once(channel, "IsActive", ref()))
        assert (code, message) == (
            grpc.StatusCode.UNAVAILABLE,
            "shop/access has not been reconciled recently",
        )

    clock = HandClock()
    over(store(readings(), clock=clock), story)


def test_invalid_metadata_is_an_invalid_argument() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        for call, message in (
            (once(channel, "GetMetricSpec", ref(metric="lag")), "metric must be one of"),
            (stream(channel, ref(targetValue="-1")).read(), "targetValue must be greater than 0"),
            (
                once(channel, "GetMetrics", field(1, ref()) + field(2, b"x")),
                "provides metric loghub_desired_workers, not 'x'",
            ),
        ):
            code, reported = await refused(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert message in reported

    over(store(readings()), story)


def test_an_optional_call_is_unimplemented() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        call = channel.unary_stream("/externalscaler.ExternalScaler/StreamMetricSpec")(ref(), timeout=GUARD_S)
        assert (await refused(call.read()))[0] is grpc.StatusCode.UNIMPLEMENTED

    over(store(readings()), story)


def test_changes_are_pushed_at_once_and_nothing_else() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        call = stream(channel, ref())
        assert await call.read() == NO
        for lags, reported in (((0, None, 5), YES), ((6, None, 7, 0), NO)):
            for lag in lags:
                on.update(readings(lag_groups=lag, assignable=None), ())
                await once(channel, "GetMetricSpec", ref())  # the stream has checked by now
            assert await call.read() == reported
        on.remove("shop", "access")
        assert (await refused(call.read()))[0] is grpc.StatusCode.NOT_FOUND

    on = store(readings(lag_groups=0))
    over(on, story)


def test_nothing_is_pushed_until_the_state_is_known() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        call = stream(channel, ref())
        while not on._listeners:
            await asyncio.sleep(0.01)
        on.update(readings(lag_groups=9), ())
        assert await call.read() == YES

    on = store(readings(lag_groups=None, assignable=None))
    over(on, story)


def test_streams_are_bounded_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        held = [stream(channel, ref()) for _ in range(2)]
        assert [await one.read() for one in held] == [YES, YES]
        assert (await refused(stream(channel, ref()).read()))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await once(channel, "IsActive", ref()) == YES
        held[0].cancel()
        while len(on._listeners[("shop", "access")]) == 2:
            await asyncio.sleep(0.01)
        assert await stream(channel, ref()).read() == YES

    monkeypatch.setattr(keda, "MAX_STREAMS", 2)
    on = store(readings())
    over(on, story)


def test_messages_are_bounded() -> None:
    async def story(channel: grpc.aio.Channel) -> None:
        large = b"\x0a\x80\x80\x08" + b"x" * 131_072  # field 1 of 128 KiB
        code, _ = await refused(once(channel, "IsActive", large))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await once(channel, "IsActive", ref()) == YES

    over(store(readings()), story)


def test_a_port_in_use_is_an_os_error() -> None:
    async def run() -> None:
        async with serving_keda("127.0.0.1:0", store()) as address:
            with pytest.raises(OSError, match=f"cannot listen on {address}"):
                async with serving_keda(address, store()):
                    pass

    asyncio.run(run())


def test_with_tls_only_clients_with_a_certificate_and_renewed_without_a_restart(tmp_path: Path) -> None:
    """``ca.crt`` with the key pair, as KEDA's tlsClientCert and tlsClientKey are for."""
    clients, first, second = Authority("clients"), Authority("first"), Authority("second")

    async def run() -> None:
        first.write_pair(tmp_path, "localhost", clients_ca=clients)
        async with serving_keda("127.0.0.1:0", store(readings()), keys=KeyFolder(tmp_path)) as address:
            assert await requested(address, first, clients) == YES
            assert (await refused(requested(address, first, None)))[0] is grpc.StatusCode.UNAVAILABLE
            assert (await refused(requested(address, second, clients)))[0] is grpc.StatusCode.UNAVAILABLE
            second.write_pair(tmp_path, "localhost", clients_ca=clients)
            assert await requested(address, second, clients) == YES

    async def requested(address: str, server: Authority, client: Authority | None) -> bytes:
        pair = client.pair("keda") if client else None
        key, chain = (pair.key, pair.certificate) if pair else (None, None)
        credentials = grpc.ssl_channel_credentials(server.pem, key, chain)
        options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.enable_http_proxy", 0)]
        async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
            return await once(channel, "IsActive", ref())

    asyncio.run(run())
