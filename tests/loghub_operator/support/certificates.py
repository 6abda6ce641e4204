"""Certificates for tests of TLS, in memory."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from loghub_operator.autoscaling.certificates import KeyPair

_PEM = serialization.Encoding.PEM


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _server_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


@dataclass(slots=True)
class Authority:
    """A certificate authority of its own."""

    name: str
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    _certificate: x509.Certificate = field(init=False)

    def __post_init__(self) -> None:
        self._certificate = self._signed(self.name, self._key.public_key(), ca=True)

    @property
    def pem(self) -> bytes:
        return self._certificate.public_bytes(_PEM)

    def pair(self, name: str, *others: str) -> KeyPair:
        """A certificate with this common name; it and the others are names or addresses of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        plain = serialization.NoEncryption()
        return KeyPair(
            certificate=self._signed(name, key.public_key(), ca=False, others=others).public_bytes(_PEM),
            key=key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, plain),
        )

    def write_pair(self, folder: Path, *names: str, clients_ca: "Authority | None" = None) -> None:
        """As a mounted Secret has it."""
        pair = self.pair(*names)
        (folder / "tls.crt").write_bytes(pair.certificate)
        (folder / "tls.key").write_bytes(pair.key)
        if clients_ca is not None:
            (folder / "ca.crt").write_bytes(clients_ca.pem)

    def _signed(
        self, name: str, key: ec.EllipticCurvePublicKey, *, ca: bool, others: tuple[str, ...] = ()
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([*map(_server_name, (name, *others))]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256())
