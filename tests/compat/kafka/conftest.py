"""The two places of the scenarios: the service, and a real Kafka broker to compare it with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import kafka
from tests.cluster import require
from tests.compat.kafka.client_programs import KafkaPlace, a_kafka_place
from tests.compat.kafka.programs.held_service import HOLD
from tests.compat.kafka.real_place import RealPlace, a_real_place
from tests.loghub_operator.support.certificates import Authority

PLACES = ("service", pytest.param("real", marks=pytest.mark.deep))


@pytest.fixture(params=PLACES)
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KafkaPlace]:
    with opened(request.param, tmp_path / "place") as made:
        yield made


@pytest.fixture
def hold(tmp_path: Path) -> Path:
    return tmp_path / "hold"


@pytest.fixture(params=PLACES)
def held_place(tmp_path: Path, hold: Path, request: pytest.FixtureRequest) -> Iterator[KafkaPlace]:
    """Its service keeps answers for itself, as `hold` says; a real broker answers at once."""
    program = {"module": "tests.compat.kafka.programs.held_service", "environment": {HOLD: str(hold)}}
    with opened(request.param, tmp_path / "place", **program) as made:
        yield made


@contextmanager
def opened(which: str, folder: Path, **service_options: Any) -> Iterator[KafkaPlace]:
    if which == "service":
        with a_kafka_place(folder, **service_options) as service:
            yield service
        return
    if reason := kafka.missing():
        require.absent(reason)
    with a_real_place(folder) as real:
        yield real


@pytest.fixture(params=PLACES)
def tls_place(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[KafkaPlace]:
    """Its clients verify its certificate; it has the topic, with one partition."""
    authority = Authority("tests")
    authority.write_pair(tmp_path, "127.0.0.1")
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(authority.pem)
    extra = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with pytest.MonkeyPatch.context() as patched:
        # For the requests of this process. The programs start without it: they have the setting only.
        patched.setenv("SSL_CERT_FILE", str(trusted))
        with opened(request.param, tmp_path / "place", extra=extra) as made:
            made.create(shards=1)
            patched.undo()
            if isinstance(made, RealPlace):
                trusted.write_text(made.broker.authority)
            made.authority = str(trusted)
            yield made
