"""A certificate with its key, from a folder that may change, and a server's TLS with it.

What for: both TLS servers. What it must not know: who serves what. Read next:
`loghub_operator.autoscaling.tls.self_signed` (one made here),
`loghub_operator.autoscaling.external_metrics.server`.

A folder is that of a mounted ``kubernetes.io/tls`` Secret: ``tls.crt``, ``tls.key``, and ``ca.crt``
where the clients' certificates are to be checked. One that is replaced meanwhile is read anew.
"""

import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

LARGEST_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM. ``ca`` signs the clients' certificates."""

    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes | None = None


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """Where a pair is kept for us."""

    folder: Path

    def read(self) -> KeyPair:
        """As it is now. Raises OSError where a file is missing or too large."""
        ca = self.folder / "ca.crt"
        return KeyPair(
            certificate=_content(self.folder / "tls.crt"),
            key=_content(self.folder / "tls.key"),
            ca=_content(ca) if ca.exists() else None,
        )


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        raise OSError(f"{path} is too large for a certificate")
    return content


def server_context(pair: KeyPair, *, clients_ca: str) -> ssl.SSLContext:
    """TLS 1.2 or newer, for clients whose certificate this CA signed and no others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=clients_ca)
    # The library takes a key from files only; these are gone before anything is served.
    with tempfile.TemporaryDirectory() as folder:
        chain, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        chain.write_bytes(pair.certificate)
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        context.load_cert_chain(chain, key)
    return context
