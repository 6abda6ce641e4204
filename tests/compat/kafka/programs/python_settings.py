"""What kafka-python and aiokafka call by the same names."""

from typing import Any


def connection(settings: dict[str, Any]) -> dict[str, Any]:
    """Where to connect, and as whom; each library has TLS in its own way."""
    return {
        "bootstrap_servers": settings["servers"],
        "security_protocol": "SASL_SSL" if settings["ca"] else "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": settings["user"],
        "sasl_plain_password": settings["password"],
        "metadata_max_age_ms": 1000,
    }
