"""The calls of subscriptions over HTTP, a part of `loghub.client.http` (docs/subscriptions-protocol.md)."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from loghub.client.port import Position, check_logstore, check_subscription
from loghub.client.schemas import decode
from loghub.client.transport import DONE, JSON, HttpAnswer, HttpCall, Transport
from loghub.wire.errors import Code, ExtensionMissing, LogHubError
from loghub.wire.subscriptions import (
    EXCHANGE_MEDIA_TYPE,
    Exchange,
    Exchanged,
    SkippedLogs,
    SubscriptionSeek,
    SubscriptionSkip,
    SubscriptionSpec,
    SubscriptionStatus,
    SubscriptionSummary,
)

T = TypeVar("T")
EXTENSION = "subscriptions"
_NONCE_BYTES = 12  # two joins of one name never have the same


class HttpSubscriptions:
    """A part of `loghub.client.http.HttpLogHub`."""

    _transport: Transport

    def has_subscriptions(self) -> bool:
        """Whether the service has subscriptions. Requested only once, with `has_extensions`."""
        return EXTENSION in self._transport.discover().extensions

    def list_subscriptions(self, logstore: str) -> tuple[SubscriptionSummary, ...]:
        answer = self._subscription_call("GET", _all(logstore))
        return decode(answer.body, tuple[SubscriptionSummary, ...])

    def create_subscription(self, logstore: str, name: str, spec: SubscriptionSpec) -> None:
        done_code = Code.SUBSCRIPTION_ALREADY_EXIST if spec.must_be_new else None
        self._subscription_call("PUT", _one(logstore, name), spec, done_code=done_code)

    def delete_subscription(self, logstore: str, name: str) -> None:
        self._subscription_call("DELETE", _one(logstore, name), done_code=Code.SUBSCRIPTION_NOT_EXIST)

    def subscription_status(self, logstore: str, name: str) -> SubscriptionStatus:
        return decode(self._subscription_call("GET", _one(logstore, name)).body, SubscriptionStatus)

    def seek_subscription(self, logstore: str, name: str, position: Position | Mapping[int, str]) -> None:
        if isinstance(position, Mapping):
            seek = SubscriptionSeek(marks=position)
        else:
            seek = SubscriptionSeek(position=position)
        self._subscription_call("POST", f"{_one(logstore, name)}/seek", seek)

    def skip_subscription(self, logstore: str, name: str, *, shard: int, logs: int | None) -> int:
        skip = SubscriptionSkip(shard=shard, logs=logs)
        # Skipped twice, it would be twice as many.
        call = self._subscription_call("POST", f"{_one(logstore, name)}/skip", skip, repeatable=logs is None)
        return decode(call.body, SkippedLogs).skipped

    def exchange(self, logstore: str, name: str, exchange: Exchange) -> Exchanged:
        if not exchange.session and not exchange.nonce:
            exchange = replace(exchange, nonce=os.urandom(_NONCE_BYTES).hex())
        done_code = Code.SUBSCRIPTION_FENCED if exchange.leave else None
        path = f"{_one(logstore, name)}/exchange"
        answer = self._subscription_call("POST", path, exchange, done_code=done_code)
        if answer is DONE:
            return Exchanged(session="", lease_s=exchange.lease_s)
        try:
            return msgspec.msgpack.decode(answer.body, type=Exchanged)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LogHubError(
                Code.BAD_RESPONSE, 200, f"this is not an answer of the embedded service: {error}"
            ) from error

    def _subscription_call(
        self,
        method: str,
        path: str,
        value: object = None,
        *,
        repeatable: bool = True,
        done_code: Code | None = None,
    ) -> HttpAnswer:
        if not self.has_subscriptions():
            raise ExtensionMissing("subscriptions are an extension of the embedded service")
        is_exchange = isinstance(value, Exchange)
        encode = msgspec.msgpack.encode if is_exchange else msgspec.json.encode
        call = HttpCall(
            method=method,
            path=path,
            headers={} if value is None else {"Content-Type": EXCHANGE_MEDIA_TYPE if is_exchange else JSON},
            body=b"" if value is None else encode(value),
            repeatable=repeatable,
            done_code=done_code,
        )
        try:
            return self._transport.send(call)
        except LogHubError as error:
            if error.code == Code.INVALID_METHOD:  # an older service was installed meanwhile
                self._transport.forget()
            raise


def _all(logstore: str) -> str:
    return f"/_loghub/v1/logstores/{check_logstore(logstore)}/subscriptions"


def _one(logstore: str, name: str) -> str:
    return f"{_all(logstore)}/{check_subscription(name)}"
