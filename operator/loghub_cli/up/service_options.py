"""How the embedded service of this machine was started, kept next to its data.

`loghub up` starts it again if it dies, even if `loghub serve` had started it: then with the same options.
Other commands learn here how to reach it, and which environment variables have the access key for an endpoint
other than the embedded service.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from loghub.atomic_file import replace_file
from loghub_cli.up.client_endpoint import (
    PROTOCOLS,
    ClientProtocol,
    EndpointOptions,
    check_free,
    host_and_port,
)
from loghub_cli.up.folder_identity import Ownership

KEY_ID = "LOGHUB_ACCESS_KEY_ID"
KEY_SECRET = "LOGHUB_ACCESS_KEY_SECRET"  # noqa: S105 - a variable's name, not a secret
TOKEN = "LOGHUB_SECURITY_TOKEN"  # noqa: S105 - a variable's name, not a secret
REGION = "LOGHUB_REGION"  # with it, requests are signed with version 4


_FILE = "options.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """``endpoints`` has an entry for each protocol whose clients are served, by its name. Files are absolute
    paths. ``more`` are flags of the service itself, as they were given."""

    endpoints: dict[str, EndpointOptions] = field(default_factory=dict)
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

    def served(self) -> Iterator[tuple[ClientProtocol, EndpointOptions]]:
        """The protocols whose clients are served."""
        for protocol in PROTOCOLS:
            if protocol.name in self.endpoints:
                yield protocol, self.endpoints[protocol.name]

    def arguments(self, folder: Path) -> list[str]:
        """For `python -m loghub_service` on this folder."""
        named = {"--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        flags = [text for name, value in named.items() if value is not None for text in (name, value)]
        for protocol, endpoint in self.served():
            flags += endpoint.arguments(protocol, folder)
        return [*flags, *self.more]

    def prepare(self, folder: Path) -> None:
        """For a start on this folder. Raises `AddressInUse`, with nothing changed."""
        check_free(self.endpoints)
        for protocol in PROTOCOLS:
            protocol.address_file(folder).unlink(missing_ok=True)
        self.write(folder)


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
