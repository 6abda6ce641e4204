"""``python -m loghub_service``: the embedded LogHub service as a process.

It translates the command line to `ServiceSettings`, and exceptions to one line on stderr and an exit status.
"""

import asyncio
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import click
import uvloop

from loghub.clock import SystemClock
from loghub.freed_memory import limit_freed_memory
from loghub.wire import names
from loghub_service.errors import ServiceFault
from loghub_service.kafka.coordinator.group import KafkaGroupLimits
from loghub_service.limit_flags import chosen, flags_of
from loghub_service.log_setup import configure
from loghub_service.ports import OsDisk, OsRandom, Platform
from loghub_service.server import serve
from loghub_service.settings import (
    MIB,
    EndpointSettings,
    KafkaLimits,
    KafkaSettings,
    Limits,
    PulsarLimits,
    PulsarSettings,
    ServiceSettings,
    contradiction,
)

# How long a thread may hold the interpreter while others wait, the event loop among them. With six threads
# that decode batches, this reduces the median of heartbeats to a third of the value with Python's default of
# 5 ms, and the threads take a fifth more time.
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
        uvloop.run(serve(settings, Platform(clock=SystemClock(), disk=OsDisk(), random=OsRandom()), lines))
    except (ServiceFault, OSError) as error:
        lines.writer.write(f"loghub_service: {error}")  # the reason for the exit
        return 1
    except asyncio.CancelledError:
        return 0
    finally:
        lines.close()
    return 0


def parse(arguments: Sequence[str] | None) -> ServiceSettings:
    """Parse the command line; if it is invalid, print what is wrong with it and exit with status 2."""
    try:
        parsed = command.main(
            args=None if arguments is None else list(arguments), prog_name=_PROGRAM, standalone_mode=False
        )
    except click.UsageError as error:
        error.show()
        raise SystemExit(error.exit_code) from None
    if not isinstance(parsed, ServiceSettings):  # --help
        raise SystemExit(parsed)
    return parsed


_PROGRAM = "python -m loghub_service"


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not _is_number(port, 0, 0xFFFF):
        raise click.BadParameter(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _number(minimum: int, maximum: int) -> Callable[[object], int]:
    def number(value: object) -> int:
        if not _is_number(str(value), minimum, maximum):
            raise click.BadParameter(f"must be a number from {minimum} to {maximum}")
        return int(str(value))

    return number


def _delay(value: str | float) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 60:
        raise click.BadParameter("must be a number of seconds from 0 to 60")
    return seconds


def _is_number(text: str, minimum: int, maximum: int) -> bool:
    """Whether the text is a decimal number between the bounds. `int` accepts more forms, and takes long for
    thousands of digits."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(maximum))
    return is_number and minimum <= int(text) <= maximum


_LIMIT_FLAGS = flags_of(Limits)
_KAFKA_LIMIT_FLAGS = flags_of(KafkaLimits) + flags_of(KafkaGroupLimits)
_PULSAR_LIMIT_FLAGS = flags_of(PulsarLimits)
# The options of each part of the help; the rest come first.
_PARTS = {
    "Limits (what exceeds one is refused with the limit in the message)": [
        flag.argument for flag in _LIMIT_FLAGS
    ],
    "Limits of the Kafka endpoint (docs/kafka.md 6)": [flag.argument for flag in _KAFKA_LIMIT_FLAGS],
    "Limits of the Pulsar endpoint (docs/pulsar.md 6)": [flag.argument for flag in _PULSAR_LIMIT_FLAGS],
    "Kafka endpoint (docs/kafka.md)": [
        "kafka", "kafka_advertise", "kafka_port_file", "kafka_rebalance_delay", "kafka_plaintext",
    ],
    "Pulsar endpoint (docs/pulsar.md)": [
        "pulsar", "pulsar_advertise", "pulsar_port_file", "pulsar_auto_create", "pulsar_plaintext",
    ],
}  # fmt: skip
# The settings whose value is the one on the command line.
_AS_GIVEN = (
    "admin", "port_file", "base_names", "credentials_dir", "tls_certificate", "tls_key", "log_format",
)  # fmt: skip
F = TypeVar("F", bound=Callable[..., object])
E = TypeVar("E", bound=EndpointSettings)


class _Command(click.Command):
    """A command whose help has its options in parts."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            param.name: record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))
        }
        in_parts = {name for names_of_part in _PARTS.values() for name in names_of_part}
        parts = {"Options": [name for name in records if name not in in_parts], **_PARTS}
        for title, names_of_part in parts.items():
            with formatter.section(title):
                formatter.write_dl([records[name] for name in names_of_part])


def _limit_options(function: F) -> F:
    for flag in reversed(_LIMIT_FLAGS + _KAFKA_LIMIT_FLAGS + _PULSAR_LIMIT_FLAGS):
        kind = _number(flag.minimum, flag.maximum)
        option = click.option(
            flag.name, type=kind, default=flag.default, show_default=True, metavar="N", help=flag.help
        )
        function = option(function)
    return function


def _endpoint_options(name: str, title: str) -> Callable[[F], F]:
    """The options of an endpoint for clients of another protocol."""
    options = (
        click.option(
            f"--{name}", type=_address, metavar="HOST:PORT",
            help=f"Address on which {title} clients are served, with TLS if --tls-cert is given; default: "
            "none.",
        ),
        click.option(
            f"--{name}-advertise", type=_address, metavar="HOST:PORT",
            help=f"Address that {title} clients connect to after the first answer; default: the one that "
            "they used.",
        ),
        click.option(
            f"--{name}-port-file", metavar="FILE",
            help=f"File to which HOST:PORT of --{name} is written once it accepts clients.",
        ),
        click.option(
            f"--{name}-plaintext", is_flag=True,
            help=f"Serve {title} without TLS on an address other than loopback; secrets are sent in clear.",
        ),
    )  # fmt: skip

    def decorated(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorated


@click.command(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--data", required=True, metavar="DIR", help="Data directory; created if it does not exist.")
@click.option(
    "--listen", required=True, type=_address, metavar="HOST:PORT",
    help="Address to listen on; without HOST every address; port 0 chooses a free one.",
)  # fmt: skip
@click.option(
    "--admin-listen", "admin", type=_address, metavar="HOST:PORT",
    help="Address of /metrics and /healthz, without TLS and authentication; default: no metrics, and "
    "/healthz only on the address of --listen.",
)  # fmt: skip
@click.option(
    "--port-file", metavar="FILE",
    help="File to which HOST:PORT is written once the service listens; GET /healthz says when it serves.",
)  # fmt: skip
@click.option(
    "--base-name", "base_names", multiple=True, metavar="NAME",
    help="Host name of the endpoint, repeatable: requests have Host <project>.<NAME>; default: any name.",
)  # fmt: skip
@click.option(
    "--credentials-dir", metavar="DIR",
    help="Directory with the files accessKeyId and accessKeySecret of one key with all rights, or with "
    "accessKeys.json, a list of keys with their projects and rights; default: a generated key.",
)  # fmt: skip
@click.option(
    "--tls-cert", "tls_certificate", metavar="FILE",
    help="Serve TLS with this certificate chain (PEM); read again when it changes.",
)  # fmt: skip
@click.option("--tls-key", metavar="FILE", help="The certificate's key (PEM), not encrypted.")
@click.option(
    "--segment-mib", type=_number(1, 1024), default=16, show_default=True, metavar="N",
    help="Size of a log segment in MiB.",
)  # fmt: skip
@click.option("--log-format", type=click.Choice(["json", "console"]), default="json", show_default=True)
@_limit_options
@_endpoint_options("kafka", "Kafka")
@click.option(
    "--kafka-rebalance-delay", type=_delay, show_default=True, metavar="SECONDS",
    default=KafkaGroupLimits().initial_rebalance_delay_ms / 1000,
    help="For which a new consumer group waits for more members.",
)  # fmt: skip
@_endpoint_options("pulsar", "Pulsar")
@click.option(
    "--pulsar-auto-create", is_flag=True,
    help="Create a logstore for a topic that a Pulsar client names, if its key has the right admin.",
)  # fmt: skip
def command(
    data: str, listen: tuple[str, int], segment_mib: int, kafka_rebalance_delay: float, **values: Any
) -> ServiceSettings:
    """Run the embedded LogHub service."""
    if (values["tls_certificate"] is None) != (values["tls_key"] is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    host, port = listen
    settings = ServiceSettings(
        data=os.path.abspath(data),
        host=host,
        port=port,
        kafka=_endpoint(KafkaSettings, "kafka", "Kafka", values),
        pulsar=_endpoint(PulsarSettings, "pulsar", "Pulsar", values, auto_create="pulsar_auto_create"),
        segment_bytes=segment_mib * MIB,
        limits=chosen(Limits(), values),
        kafka_limits=chosen(KafkaLimits(), values),
        pulsar_limits=chosen(PulsarLimits(), values),
        kafka_groups=chosen(
            KafkaGroupLimits(initial_rebalance_delay_ms=round(kafka_rebalance_delay * 1000)), values
        ),
        **{name: values[name] for name in _AS_GIVEN},
    )
    problem = contradiction(settings)
    if problem is not None:
        raise click.UsageError(problem)
    return settings


def _endpoint(kind: type[E], name: str, title: str, values: Mapping[str, Any], **more: str) -> E | None:
    """The settings of an endpoint; ``more`` has an option for each further field. Raises UsageError for a
    contradiction of its options."""
    if values[name] is None:
        options = (f"{name}_advertise", f"{name}_port_file", f"{name}_plaintext", *more.values())
        if any(values[option] for option in options):
            raise click.UsageError(f"the options of the {title} endpoint need --{name}")
        return None
    host, port = values[name]
    if values["tls_certificate"] is None and not values[f"{name}_plaintext"] and not names.is_loopback(host):
        raise click.UsageError(
            f"--{name} {host}: clients send their secret in clear without TLS: give --tls-cert and "
            f"--tls-key, or --{name}-plaintext where the network is trusted"
        )
    further = {field: values[option] for field, option in more.items()}
    return kind(
        host=host,
        port=port,
        port_file=values[f"{name}_port_file"],
        advertised=values[f"{name}_advertise"],
        **further,
    )


def _raise_open_files() -> int:
    """Raise the soft limit on open files, and return it: each connection and each shard keeps one open, and
    the usual limit of 1024 exists only for programs that use select()."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def bounded_by(open_files: int, settings: ServiceSettings) -> ServiceSettings:
    """The settings with connections that leave half of the open files to segments. HTTP, Kafka and Pulsar
    have equal parts of the other half."""
    if open_files == resource.RLIM_INFINITY:
        return settings
    endpoints = 1 + (settings.kafka is not None) + (settings.pulsar is not None)
    maximum = open_files // (2 * endpoints)
    limits, kafka, pulsar = settings.limits, settings.kafka_limits, settings.pulsar_limits
    if settings.kafka is not None:
        kafka = replace(kafka, connections=min(kafka.connections, maximum))
    if settings.pulsar is not None:
        pulsar = replace(pulsar, connections=min(pulsar.connections, maximum))
    return replace(
        settings,
        limits=replace(limits, connections=min(limits.connections, maximum)),
        kafka_limits=kafka,
        pulsar_limits=pulsar,
    )


if __name__ == "__main__":
    sys.exit(main())
