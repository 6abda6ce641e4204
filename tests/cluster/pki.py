"""Certificates of a throw-away cluster, by the `openssl` program: one certificate authority per cluster, and
a key pair for each program that proves its identity.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

VALID_DAYS = 30
_EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its private key, as files."""

    certificate: Path
    key: Path


def _config(extensions: dict[str, str]) -> str:
    lines = ["[req]", "distinguished_name=dn", "x509_extensions=ext", "prompt=no", "[dn]", "[ext]"]
    return "\n".join([*lines, *(f"{name}={value}" for name, value in extensions.items()), ""])


def _request(folder: Path, name: str, *, subject: str, extensions: dict[str, str], extra: list[str]) -> Pair:
    pair = Pair(certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
    config = folder / f"{name}.cnf"
    config.write_text(_config(extensions))
    command = ["openssl", "req", "-x509", *_EC, "-config", str(config), "-subj", subject]
    command += ["-days", str(VALID_DAYS), "-keyout", str(pair.key), "-out", str(pair.certificate), *extra]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl could not make {name}: {done.stderr.strip()}")
    pair.key.chmod(0o600)
    return pair


def authority(folder: Path, name: str) -> Pair:
    """A new certificate authority ``<name>.crt``, ``<name>.key``."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    extensions = {
        "basicConstraints": "critical,CA:TRUE",
        "keyUsage": "critical,keyCertSign,digitalSignature",
        "subjectKeyIdentifier": "hash",
    }
    return _request(folder, name, subject=f"/CN=loghub-test-{name}", extensions=extensions, extra=[])


def issue(
    ca: Pair,
    folder: Path,
    name: str,
    *,
    common_name: str,
    organisation: str = "",
    names: tuple[str, ...] = (),
) -> Pair:
    """A pair signed by ``ca``; ``names`` (DNS:… or IP:…) make it a server's as well."""
    subject = (f"/O={organisation}" if organisation else "") + f"/CN={common_name}"
    extensions = {
        "keyUsage": "critical,digitalSignature",
        "extendedKeyUsage": "clientAuth,serverAuth" if names else "clientAuth",
        "authorityKeyIdentifier": "keyid",
    }
    if names:
        extensions["subjectAltName"] = ",".join(names)
    signed_by = ["-CA", str(ca.certificate), "-CAkey", str(ca.key)]
    return _request(folder, name, subject=subject, extensions=extensions, extra=signed_by)


def signing_key(folder: Path, name: str) -> Path:
    """A bare private key: what service account tokens are signed with."""
    key = folder / f"{name}.key"
    command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
    subprocess.run(command, capture_output=True, timeout=60, check=True)
    key.chmod(0o600)
    return key
