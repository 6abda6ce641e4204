"""A certificate with its key, read from a folder or generated, and the TLS configuration of a server that
uses it.

The folder is a mounted ``kubernetes.io/tls`` Secret: ``tls.crt``, ``tls.key``, and ``ca.crt`` if the server
verifies client certificates. The servers read it repeatedly, so a renewed certificate takes effect without a
restart of the process. A server without such a folder generates a self-signed certificate. The aggregation
layer verifies it against the copy in the APIService, so no CA has to sign it.
"""

import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

MAX_FILE_BYTES = 1024 * 1024  # a Secret has at most this size


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, in PEM. ``ca`` is the CA of the client certificates."""

    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes | None = None


@dataclass(frozen=True, slots=True)
class KeyFolder:
    """A mounted folder with a key pair."""

    folder: Path

    def read(self) -> KeyPair:
        """The current key pair. Raises OSError if a file is missing or too large."""
        ca = self.folder / "ca.crt"
        return KeyPair(
            certificate=_content(self.folder / "tls.crt"),
            key=_content(self.folder / "tls.key"),
            ca=_content(ca) if ca.exists() else None,
        )


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise OSError(f"{path} is too large for a certificate")
    return content


def server_context(pair: KeyPair, *, clients_ca: str) -> ssl.SSLContext:
    """TLS 1.2 or newer, only for clients whose certificate this CA signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=clients_ca)
    # The library reads keys only from files; these are deleted before anything is served.
    with tempfile.TemporaryDirectory() as folder:
        chain, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        chain.write_bytes(pair.certificate)
        key.touch(mode=0o600)
        key.write_bytes(pair.key)
        context.load_cert_chain(chain, key)
    return context


# Much longer than RENEW_AFTER_S of the server, which generates another one in time.
VALID = timedelta(days=365)
SKEW = timedelta(hours=1)  # between this clock and the clock of the client: far more than NTP leaves


def self_signed(host: str, *, now_unix_s: float) -> KeyPair:
    """A new key, and a certificate for a server of this name, which cannot sign other certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    now = datetime.fromtimestamp(now_unix_s, UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return KeyPair(
        certificate=builder.sign(key, hashes.SHA256()).public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain),
    )
