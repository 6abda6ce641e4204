"""The limits that the command line can change, each with its bounds.

A limit is one number of `Limits`, or several that must grow together. What no operator of the service has a
reason to change, such as the time for a head, has no flag.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

from loghub.service.settings import MIB, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitFlag:
    """One flag. ``unit`` is what 1 of its number is in the fields of `Limits` that it sets."""

    name: str
    fields: tuple[str, ...]
    least: int
    most: int
    help: str
    unit: int = 1

    @property
    def default(self) -> int:
        value: int = getattr(Limits(), self.fields[0])
        return value // self.unit


LIMIT_FLAGS = (
    LimitFlag(
        name="--max-connections",
        fields=("connections",),
        least=10,
        most=1_000_000,
        help="connections open at the same time; beyond it, connections without an authenticated request are "
        "closed first; at most half of the open files that the system allows",
    ),
    LimitFlag(
        name="--max-log-group-mib",
        fields=("body_bytes", "raw_bytes"),
        least=1,
        most=30,  # what the vendor's newest SDK sends; with a full answer it is less than clients accept
        unit=MIB,
        help="size of one PutLogs request, compressed and not compressed, in MiB",
    ),
    LimitFlag(
        name="--max-put-memory-mib",
        fields=("log_bytes",),
        least=4,
        most=65_536,
        unit=MIB,
        help="total of the log groups that are received and not yet stored, in MiB",
    ),
    LimitFlag(
        name="--max-answer-memory-mib",
        fields=("response_bytes",),
        least=16,
        most=65_536,
        unit=MIB,
        help="total of the answers that clients have not read yet, in MiB",
    ),
    LimitFlag(
        name="--max-pull-mib",
        fields=("pull_bytes",),
        least=1,
        most=30,
        unit=MIB,
        help="size of a PullLogs answer in MiB; its last log group may exceed it",
    ),
    LimitFlag(name="--max-projects", fields=("projects",), least=1, most=10_000, help="projects"),
    LimitFlag(
        name="--max-logstores",
        fields=("logstores_per_project",),
        least=1,
        most=10_000,
        help="logstores of a project",
    ),
    LimitFlag(
        name="--max-shards",
        fields=("shards_per_project",),
        least=1,
        most=10_000,
        help="shards of a project, read-only ones included; each takes one or two open files",
    ),
    LimitFlag(
        name="--max-shards-at-creation",
        fields=("shards_at_creation",),
        least=1,
        most=256,
        help="shards with which a logstore is created; SLS allows 10",
    ),
    LimitFlag(
        name="--max-consumer-groups",
        fields=("groups_per_logstore",),
        least=1,
        most=1_000,
        help="consumer groups of a logstore; SLS allows 30",
    ),
    LimitFlag(
        name="--max-consumers",
        fields=("consumers_per_group",),
        least=1,
        most=10_000,
        help="consumers of a group",
    ),
    LimitFlag(
        name="--max-group-timeout-s",
        fields=("timeout_max_s",),
        least=1,
        most=30 * 24 * 3600,
        help="timeout of a consumer group in seconds",
    ),
)


def add_limit_flags(parser: argparse.ArgumentParser) -> None:
    """Add a flag for each limit. A number outside its bounds is a usage error."""
    group = parser.add_argument_group(
        "limits", "What exceeds a limit is refused with the limit in the message."
    )
    for flag in LIMIT_FLAGS:
        group.add_argument(
            flag.name,
            type=_number_of(flag),
            default=flag.default,
            metavar="N",
            help=f"{flag.help} (default: %(default)s, {flag.least} to {flag.most})",
        )


def _number_of(flag: LimitFlag) -> Callable[[str], int]:
    def number(text: str) -> int:
        is_number = text.isascii() and text.isdigit() and len(text) <= len(str(flag.most))
        if not is_number or not flag.least <= int(text) <= flag.most:
            raise argparse.ArgumentTypeError(f"must be a number from {flag.least} to {flag.most}")
        return int(text)

    return number


def limits_of(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> Limits:
    """The limits of a command line. Limits that contradict each other are a usage error."""
    changes = {
        field: getattr(parsed, flag.name.removeprefix("--").replace("-", "_")) * flag.unit
        for flag in LIMIT_FLAGS
        for field in flag.fields
    }
    limits = replace(Limits(), **changes)
    if limits.log_bytes < limits.body_bytes + limits.raw_bytes:
        parser.error(
            "--max-put-memory-mib must be at least twice --max-log-group-mib: a request is in memory as it "
            "was received and decompressed"
        )
    if limits.response_bytes < limits.pull_bytes + limits.raw_bytes:
        parser.error(
            "--max-answer-memory-mib must be at least --max-pull-mib and --max-log-group-mib together: the "
            "last log group of an answer may exceed its size"
        )
    if limits.shards_at_creation > limits.shards_per_project:
        parser.error("--max-shards-at-creation must not exceed --max-shards")
    return limits
