"""``python -m loghub_service``: the embedded LogHub service as a process.

Translates the command line to `ServiceSettings`, and exceptions to one line on stderr and an exit status.
"""

import argparse
import asyncio
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace

import uvloop

from loghub.clock import SystemClock
from loghub.freed_memory import limit_freed_memory
from loghub.wire import names
from loghub_service.errors import ServiceFault
from loghub_service.kafka.coordinator.group import KafkaGroupLimits
from loghub_service.log_setup import configure
from loghub_service.ports import OsDice, OsDisk, Platform
from loghub_service.server import serve
from loghub_service.settings import (
    MIB,
    KafkaSettings,
    ServiceSettings,
    add_limit_flags,
    kafka_limits_of,
    limits_of,
)

# How long a thread may keep the others waiting, the event loop among them. With six threads that decode
# batches, the median of heartbeats is a third of that with Python's default of 5 ms; the threads take a fifth
# more time.
_SWITCH_S = 0.0005


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the service. Returns 0 after a clean stop, otherwise 1 with one line on stderr."""
    settings = parse(arguments)
    lines = configure(settings.log_format)
    limit_freed_memory()
    settings = bounded_by(_raise_open_files(), settings)
    sys.setswitchinterval(_SWITCH_S)
    os.umask(0o077)  # only the service may read log data and keys
    try:
        uvloop.run(serve(settings, Platform(clock=SystemClock(), disk=OsDisk(), dice=OsDice()), lines))
    except (ServiceFault, OSError) as error:
        lines.writer.write(f"loghub_service: {error}")  # the reason for the exit
        return 1
    except asyncio.CancelledError:
        return 0
    finally:
        lines.close()
    return 0


def parse(arguments: Sequence[str] | None) -> ServiceSettings:
    """Parse the command line; if it is invalid, print the usage and exit with status 2."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if (parsed.tls_cert is None) != (parsed.tls_key is None):
        parser.error("--tls-cert and --tls-key belong together")
    host, port = parsed.listen
    limits = limits_of(parser, parsed)
    kafka_limits, group_limits = kafka_limits_of(parser, parsed, limits)
    delay_ms = round(parsed.kafka_rebalance_delay * 1000)
    return ServiceSettings(
        data=os.path.abspath(parsed.data),
        host=host,
        port=port,
        admin=parsed.admin_listen,
        kafka=_kafka(parser, parsed),
        kafka_limits=kafka_limits,
        kafka_groups=replace(group_limits, initial_rebalance_delay_ms=delay_ms),
        port_file=parsed.port_file,
        base_names=tuple(parsed.base_name),
        credentials_dir=parsed.credentials_dir,
        tls_certificate=parsed.tls_cert,
        tls_key=parsed.tls_key,
        segment_bytes=parsed.segment_mib * MIB,
        log_format=parsed.log_format,
        limits=limits,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loghub_service", description="Run the embedded LogHub service.", allow_abbrev=False
    )
    parser.add_argument("--data", required=True, help="data directory; created if it does not exist")
    parser.add_argument(
        "--listen",
        required=True,
        type=_address,
        metavar="HOST:PORT",
        help="address to listen on; without HOST every address; port 0 chooses a free one",
    )
    parser.add_argument(
        "--admin-listen",
        type=_address,
        metavar="HOST:PORT",
        help="address of /metrics and /healthz, without TLS and authentication; default: no metrics, and "
        "/healthz only on the address of --listen",
    )
    parser.add_argument(
        "--port-file",
        help="file to which HOST:PORT is written once the service listens; GET /healthz says when it serves",
    )
    parser.add_argument(
        "--base-name", nargs="+", action="extend", default=[], metavar="NAME",
        help="host name of the endpoint: requests have Host <project>.<NAME>; default: any host name",
    )  # fmt: skip
    parser.add_argument(
        "--credentials-dir",
        help="directory with the files accessKeyId and accessKeySecret of one key with all rights, or with "
        "accessKeys.json, a list of keys with their projects and rights; default: a generated key",
    )
    parser.add_argument(
        "--tls-cert",
        metavar="FILE",
        help="serve TLS with this certificate chain (PEM); read again when it changes",
    )
    parser.add_argument("--tls-key", metavar="FILE", help="the certificate's key (PEM), not encrypted")
    parser.add_argument(
        "--segment-mib", type=_positive, default=16, help="size of a log segment in MiB (default: 16)"
    )
    parser.add_argument("--log-format", choices=("json", "console"), default="json", help="default: json")
    add_limit_flags(parser)
    _add_kafka(parser)
    return parser


def _add_kafka(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Kafka endpoint (docs/kafka.md)")
    group.add_argument(
        "--kafka",
        type=_address,
        metavar="HOST:PORT",
        help="address on which Kafka clients are served, with TLS if --tls-cert is given; default: none",
    )
    group.add_argument(
        "--kafka-advertise",
        type=_address,
        metavar="HOST:PORT",
        help="address that Kafka clients connect to after the first answer; default: the one that they used",
    )
    group.add_argument(
        "--kafka-port-file", help="file to which HOST:PORT of --kafka is written once it accepts clients"
    )
    group.add_argument(
        "--kafka-rebalance-delay",
        type=_delay,
        default=KafkaGroupLimits().initial_rebalance_delay_ms / 1000,
        metavar="SECONDS",
        help="for which a new consumer group waits for more members (default: %(default)s)",
    )
    group.add_argument(
        "--kafka-plaintext",
        action="store_true",
        help="serve Kafka without TLS on an address other than loopback; passwords are sent in clear",
    )


def _kafka(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> KafkaSettings | None:
    if parsed.kafka is None:
        if parsed.kafka_advertise or parsed.kafka_port_file or parsed.kafka_plaintext:
            parser.error("the options of the Kafka endpoint need --kafka")
        return None
    host, port = parsed.kafka
    if parsed.tls_cert is None and not parsed.kafka_plaintext and not names.is_loopback(host):
        parser.error(
            f"--kafka {host}: clients send their secret in clear without TLS: give --tls-cert and --tls-key, "
            "or --kafka-plaintext where the network is trusted"
        )
    return KafkaSettings(
        host=host, port=port, port_file=parsed.kafka_port_file, advertised=parsed.kafka_advertise
    )


def _delay(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 60:
        raise argparse.ArgumentTypeError("must be a number of seconds from 0 to 60")
    return seconds


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _positive(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1024:
        raise argparse.ArgumentTypeError("must be a number from 1 to 1024")
    return int(text)


def _raise_open_files() -> int:
    """Raise the soft limit on open files, and return it: each connection and each shard keeps one open, and
    the usual limit of 1024 exists only for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def bounded_by(open_files: int, settings: ServiceSettings) -> ServiceSettings:
    """The settings with connections that leave half of the open files to segments. With a Kafka endpoint,
    HTTP and Kafka have a quarter each."""
    if open_files == resource.RLIM_INFINITY:
        return settings
    limits, kafka = settings.limits, settings.kafka_limits
    if settings.kafka is None:
        return replace(settings, limits=replace(limits, connections=min(limits.connections, open_files // 2)))
    return replace(
        settings,
        limits=replace(limits, connections=min(limits.connections, open_files // 4)),
        kafka_limits=replace(kafka, connections=min(kafka.connections, open_files // 4)),
    )


if __name__ == "__main__":
    sys.exit(main())
