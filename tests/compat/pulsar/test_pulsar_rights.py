"""What an unmodified Pulsar client gets with and without a right, and over TLS (docs/access-keys.md 2)."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.compat.pulsar.client_programs import LANGUAGES, RefusedError
from tests.compat.pulsar.clients import Client, values
from tests.compat.pulsar.places import PROJECT, ServicePlace, a_service_place
from tests.compat.representatives import representative
from tests.loghub_operator.support.certificates import Authority
from tests.ports import free_port
from tests.support import wait_until

pytestmark = pytest.mark.long
RIGHTS = ("read", "write", "admin")


def write_keys(place_or_folder: Path, *rights: str) -> None:
    keys = [
        {"accessKeyId": right, "accessKeySecret": "secret", "projects": [PROJECT], "rights": [right]}
        for right in rights
    ]
    folder = place_or_folder / "credentials"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "accessKeys.json").write_text(json.dumps(keys))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ServicePlace]:
    """A service with a key for each right."""
    write_keys(tmp_path / "place", *RIGHTS)
    with a_service_place(tmp_path / "place") as place:
        yield place


def client_with(place: ServicePlace, language: str, right: str) -> Client:
    return place.client(language, token=f"{PROJECT}#{right}#secret", timeoutS=5)


@representative("language", LANGUAGES, "go")
def test_each_right_is_needed_for_what_it_allows(place: ServicePlace, language: str) -> None:
    topic = place.topic()
    client_with(place, language, "write").producer(topic).send("a")
    for right in ("read", "admin"):
        with pytest.raises(RefusedError):
            client_with(place, language, right).producer(topic)
    assert values(client_with(place, language, "read").consumer(topic).receive()) == ["a"]
    for right in ("write", "admin"):
        with pytest.raises(RefusedError):
            client_with(place, language, right).consumer(topic)


@representative("language", LANGUAGES, "java")
def test_a_wrong_login_is_refused_and_logged_in_words(place: ServicePlace, language: str) -> None:
    """Java shows the reason; the other libraries try again until their time-out, and only the log says it."""
    topic = place.topic()
    client = place.client(language, token=f"{PROJECT}#read#wrong", timeoutS=5)
    with pytest.raises(RefusedError) as refused:
        client.consumer(topic)
    if language == "java":
        assert "Authentication" in str(refused.value)
    wait_until(lambda: "login" in place.service.log.read_text(), "the log line")


@representative("language", LANGUAGES, "python")
def test_a_key_that_is_removed_ends_its_connections_and_comes_back(
    place: ServicePlace, language: str
) -> None:
    topic = place.topic()
    client = client_with(place, language, "read")
    consumer = client.consumer(topic, type="Shared")
    producer = place.client("go").producer(topic)
    producer.send("a")
    assert values(consumer.receive()) == ["a"]
    names = count()

    def is_refused() -> bool:
        try:
            client.consumer(topic, f"another{next(names)}")
        except RefusedError:
            return True
        return False

    write_keys(place.folder, "write")
    wait_until(is_refused, "the removal")
    write_keys(place.folder, *RIGHTS)
    producer.send("b")
    assert values(consumer.receive_until("b")) == ["a"]  # it was out when the connection ended


def test_every_client_writes_and_reads_over_tls(tmp_path: Path) -> None:
    """By name: Java looks up the name of an address, and expects it in the certificate."""
    authority, port = Authority("tests"), free_port()
    authority.write_pair(tmp_path, "localhost", "127.0.0.1")
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(authority.pem)
    extra = (
        *("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key")),
        *("--pulsar-advertise", f"localhost:{port}"),
    )
    with pytest.MonkeyPatch.context() as patched:
        # For the requests of this process. The programs start without it: they have the setting only.
        patched.setenv("SSL_CERT_FILE", str(trusted))
        with a_service_place(tmp_path / "place", extra=extra, port=port) as place:
            topic = place.topic()
            patched.undo()
            url = f"pulsar+ssl://localhost:{port}"
            for language in LANGUAGES:
                client = place.client(language, url=url, ca=str(trusted))
                client.producer(topic).send(language)
                consumer = client.consumer(topic, language)
                assert len(consumer.receive_until(language)) == LANGUAGES.index(language)
