"""Generates a self-signed certificate for a server that has no mounted certificate.

The aggregation layer verifies it against the copy in the APIService, so no CA has to sign it.
"""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from loghub_operator.autoscaling.tls.key_pair import KeyPair

VALID = timedelta(days=365)
SKEW = timedelta(hours=1)  # between this clock and that of the client


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
