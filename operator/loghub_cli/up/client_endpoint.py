"""The endpoints of the embedded service for clients of other protocols: Kafka and Pulsar.

`loghub up` and `loghub serve` treat both alike: the options have the name of the protocol, a file next to the
data has the address, and one sentence tells users how to log in.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from socket import socket

from loghub.listening import listen
from loghub.wire import names


class AddressInUse(Exception):  # noqa: N818 - says what happened
    """Clients cannot be served at the address; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProtocol:
    """``name`` is the protocol's word in options and files, ``title`` its name in sentences. ``plain`` and
    ``encrypted`` say how clients connect without and with TLS, and ``login`` what they give."""

    name: str
    title: str
    default_address: str
    plain: str
    encrypted: str
    login: str

    @property
    def page(self) -> str:
        return f"docs/{self.name}.md"

    def flag(self, rest: str = "") -> str:
        return f"--{self.name}{rest}"

    def address_file(self, folder: Path) -> Path:
        """Where the service of a folder writes the address; it exists only if there is such an endpoint."""
        return folder / f"{self.name}-address"

    def how_to_log_in(self, address: str, credentials: Path, *, tls: bool) -> str:
        """A line for users, without the secret."""
        where = address if host_and_port(address)[1] else "a free port, which `loghub status` shows"
        connection = self.encrypted if tls else self.plain
        return f"{self.title} clients: {where}, {connection}, {self.login}, which are files in {credentials}"


KAFKA = ClientProtocol(
    name="kafka",
    title="Kafka",
    default_address="127.0.0.1:9092",  # the port that Kafka clients expect
    plain="SASL_PLAINTEXT, mechanism PLAIN",
    encrypted="SASL_SSL, mechanism PLAIN",
    login="user: the project, password: <accessKeyId>#<accessKeySecret>",
)
PULSAR = ClientProtocol(
    name="pulsar",
    title="Pulsar",
    default_address="127.0.0.1:6650",  # the port that Pulsar clients expect
    plain="pulsar://",
    encrypted="pulsar+ssl://",
    login="token: <project>#<accessKeyId>#<accessKeySecret>, the last two of",
)
PROTOCOLS = (KAFKA, PULSAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """How one protocol is served. Addresses are ``HOST:PORT``; ``advertise`` None is the address that a
    client used."""

    address: str
    advertise: str | None = None
    plaintext: bool = False

    def arguments(self, protocol: ClientProtocol, folder: Path) -> list[str]:
        """For `python -m loghub_service`, which writes the address to the file in the folder."""
        flags = [protocol.flag(), self.address]
        if self.advertise is not None:
            flags += [protocol.flag("-advertise"), self.advertise]
        flags += [protocol.flag("-port-file"), str(protocol.address_file(folder))]
        return [*flags, *([protocol.flag("-plaintext")] if self.plaintext else [])]

    def sends_secrets_in_clear(self) -> bool:
        """Whether that happens without TLS, and nobody has said that it may."""
        return not (self.plaintext or is_of_this_machine(self.address))


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``HOST:PORT``, the host without brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 0xFFFF:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def is_of_this_machine(address: str) -> bool:
    """Whether only clients of this machine reach it."""
    return names.is_loopback(host_and_port(address)[0])


def check_free(endpoints: Mapping[str, EndpointOptions]) -> None:
    """Raises `AddressInUse` with what to do if nothing can listen at an address, or two are the same."""
    with ExitStack() as listening:
        for protocol in PROTOCOLS:
            if protocol.name in endpoints:
                listening.enter_context(_listener(protocol, endpoints[protocol.name].address))


def _listener(protocol: ClientProtocol, address: str) -> socket:
    try:
        return listen(*host_and_port(address))
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # the address is named anyway
        raise AddressInUse(
            f"{protocol.title} clients cannot be served at {address}: {why}; choose another address with"
            f" {protocol.flag()} HOST:PORT, for example port 0 for a free one"
        ) from None
