"""What a user may have meant by a project, logstore or group that does not exist.

The names are requested once a command has failed, with a short time limit, and a hint that cannot be had is
left out: the failure is what counts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from loghub.near_names import did_you_mean
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub_operator.cli import completed_names
from loghub_operator.cli.connection import Connection

Names = Callable[[Connection, Mapping[str, Any]], Sequence[str]]
# By the code of the answer: where the command has the name, and which ones there are.
_LOOKUPS: dict[str, tuple[str, Names]] = {
    Code.PROJECT_NOT_EXIST: ("project", lambda place, _: completed_names.projects_of(place)),
    Code.LOG_STORE_NOT_EXIST: ("logstore", lambda place, _: completed_names.logstores_of(place)),
    Code.CONSUMER_GROUP_NOT_EXIST: (
        "group",
        lambda place, given: completed_names.groups_of(
            place, given["logstore"], kafka=bool(given.get("kafka"))
        ),
    ),
}


def with_hint(error: LogHubError, place: Connection, given: Mapping[str, Any]) -> str:
    """The message of an error, with the near name; ``given`` are the parameters of the command."""
    if error.code not in _LOOKUPS:
        return str(error)
    kind, names = _LOOKUPS[error.code]
    name = given.get(kind) or (given.get("name") or place.project if kind == "project" else None)
    if not name:
        return str(error)
    try:
        return f"{error}{did_you_mean(name, names(place, given))}"
    except (LogHubException, click.ClickException):
        return str(error)
