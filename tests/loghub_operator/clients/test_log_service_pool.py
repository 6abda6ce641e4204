"""The pool of log-service clients: one for each access key, and none for a rotated one."""

from typing import Any

import pytest

from loghub.client.port import Credentials, LogHub
from loghub_operator.clients import log_service as pool_module
from loghub_operator.clients.log_service import IDLE_S, LogServicePool


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return self.now


class Client:
    """Knows its key, and whether it was closed."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self.closed = False

    def close(self) -> None:
        self.closed = True


def key(number: int, token: str = "") -> Credentials:
    return Credentials(access_key_id=f"id-{number}", access_key_secret="s", security_token=token)


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def pool(clock: Hand) -> LogServicePool:
    def connect(_endpoint: str, _project: str, credentials: Credentials) -> LogHub:
        client: Any = Client(credentials)
        return client  # type: ignore[no-any-return]

    return LogServicePool(connect, threads=1, clock=clock)


def client_for(pool: LogServicePool, credentials: Credentials) -> Client:
    client: Any = pool.client("http://x", "demo", credentials)
    assert isinstance(client, Client)
    return client


def test_the_same_access_key_gets_the_same_client(pool: LogServicePool) -> None:
    assert client_for(pool, key(1)) is client_for(pool, key(1))


def test_another_key_or_token_gets_another_client_and_the_idle_one_is_closed(
    pool: LogServicePool, clock: Hand
) -> None:
    old = client_for(pool, key(1, "token"))
    new = client_for(pool, key(1, "next"))
    assert new is not old
    assert new.credentials == key(1, "next")
    assert not old.closed, "another object may use it, and a call may be under way"
    clock.now = IDLE_S - 1
    client_for(pool, key(1, "next"))
    assert not old.closed
    clock.now = IDLE_S + 1
    assert client_for(pool, key(1, "next")) is new
    assert old.closed
    assert not new.closed


def test_the_number_of_open_clients_is_bounded(pool: LogServicePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "MAX_OPEN", 2)
    first, second = client_for(pool, key(1)), client_for(pool, key(2))
    client_for(pool, key(1))
    client_for(pool, key(3))
    assert (first.closed, second.closed) == (False, True)


def test_close_closes_all_clients(pool: LogServicePool) -> None:
    clients = [client_for(pool, key(number)) for number in range(3)]
    pool.close()
    assert all(one.closed for one in clients)
