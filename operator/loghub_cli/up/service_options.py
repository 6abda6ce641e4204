"""How the embedded service of this machine was started, kept next to its data.

`loghub up` starts it again if it dies, even if `loghub serve` had started it: then with the same options.
Other commands learn here how to reach it, and which environment variables have the access key for an endpoint
other than the embedded service.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from loghub.atomic_file import replace_file
from loghub.listening import listen
from loghub.wire import names
from loghub_cli.up.folder_identity import Ownership

KEY_ID = "LOGHUB_ACCESS_KEY_ID"
KEY_SECRET = "LOGHUB_ACCESS_KEY_SECRET"  # noqa: S105 - a variable's name, not a secret
TOKEN = "LOGHUB_SECURITY_TOKEN"  # noqa: S105 - a variable's name, not a secret
REGION = "LOGHUB_REGION"  # with it, requests are signed with version 4


_FILE = "options.json"


class AddressInUse(Exception):  # noqa: N818 - says what happened
    """Kafka clients cannot be served at the address; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Addresses are ``HOST:PORT``, and files are absolute paths. None: not given. ``more`` are flags of the
    service itself, as they were given."""

    kafka: str | None = None
    kafka_advertise: str | None = None
    kafka_plaintext: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    more: tuple[str, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> "ServiceOptions":
        """The options of the last start on this folder."""
        try:
            return msgspec.json.decode((folder / _FILE).read_bytes(), type=cls)
        except (FileNotFoundError, msgspec.DecodeError):  # started by an older release, or damaged
            return cls()

    def write(self, folder: Path) -> None:
        """For a start on this folder: an address that came with a copy is another service's."""
        if Ownership(folder).copied_from() is not None:
            address_file(folder).unlink(missing_ok=True)
        Ownership(folder).claim()
        replace_file(folder / _FILE, msgspec.json.encode(self))

    @property
    def scheme(self) -> str:
        return "http" if self.tls_cert is None else "https"

    def arguments(self, *, kafka_port_file: Path) -> list[str]:
        """For `python -m loghub_service`; the file gets the address of the Kafka endpoint."""
        named = {
            "--kafka": self.kafka,
            "--kafka-advertise": self.kafka_advertise,
            "--kafka-port-file": None if self.kafka is None else str(kafka_port_file),
            "--tls-cert": self.tls_cert,
            "--tls-key": self.tls_key,
        }
        flags = [text for name, value in named.items() if value is not None for text in (name, value)]
        return [*flags, *(["--kafka-plaintext"] if self.kafka_plaintext else []), *self.more]


def address_file(folder: Path) -> Path:
    """Where the service of a folder writes its address, which is kept for the next start."""
    return folder / "address"


def known_address(folder: Path) -> str:
    """``HOST:PORT`` at which the service of a folder ran last; "" if none has run there, or the file is
    damaged. In a copy of the folder it is the address of the original, which the key opens too: so it is ""
    as well."""
    try:
        address = address_file(folder).read_text(errors="replace").strip()
        host_and_port(address)
    except (OSError, ValueError):
        return ""
    return "" if Ownership(folder).copied_from() is not None else address


def kafka_address_file(folder: Path) -> Path:
    """The file with the address of the Kafka endpoint; it exists only if there is such an endpoint."""
    return folder / "kafka-address"


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``HOST:PORT``, the host without brackets. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 0xFFFF:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def is_of_this_machine(address: str) -> bool:
    """Whether only clients of this machine reach it."""
    return names.is_loopback(host_and_port(address)[0])


def check_free(address: str) -> None:
    """Raises `AddressInUse` if nothing can listen there, with what to do."""
    try:
        listen(*host_and_port(address)).close()
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # the address is named anyway
        raise AddressInUse(
            f"Kafka clients cannot be served at {address}: {why}; choose another address with"
            " --kafka HOST:PORT, for example port 0 for a free one"
        ) from None


def how_to_log_in(address: str, credentials: Path, *, tls: bool) -> str:
    """A line for users, without the secret."""
    protocol = "SASL_SSL" if tls else "SASL_PLAINTEXT"
    where = address if host_and_port(address)[1] else "a free port, which `loghub status` shows"
    return (
        f"Kafka clients: {where}, {protocol}, mechanism PLAIN, user: the project, password:"
        f" <accessKeyId>#<accessKeySecret>, which are files in {credentials}"
    )
