"""The checks that every adapter makes before a request, so that all reject with the same message.

A name that is not valid must not become part of a path. The error is the one that the service would
send; the rules are in `loghub.wire.names`.
"""

from collections.abc import Callable

from loghub.wire import names
from loghub.wire.errors import Code, LogHubError, MalformedName

MAX_PULL_COUNT = 1000


def check_project(project: str) -> str:
    """The name in lower case. Raises LogHubError ParameterInvalid: as a part of the host name, another text
    would lead to another host."""
    return _check(names.PROJECT, project)


def check_logstore(logstore: str) -> str:
    """The name itself. Raises LogHubError ParameterInvalid."""
    return _check(names.LOGSTORE, logstore)


def check_group(group: str) -> str:
    """The name itself. Raises LogHubError ParameterInvalid."""
    return _check(names.CONSUMER_GROUP, group)


def check_count(count: int) -> int:
    """The count itself; PullLogs allows 1 to 1000 groups (docs/sls-protocol.md 5).

    Raises LogHubError ParameterInvalid.
    """
    if not 1 <= count <= MAX_PULL_COUNT:
        raise LogHubError.of(Code.PARAMETER_INVALID, f"count must be 1 to {MAX_PULL_COUNT}, not {count}")
    return count


def _check(rule: names.NameRule, name: str) -> str:
    try:
        return rule.check(name)
    except MalformedName as error:
        raise LogHubError.of(Code.PARAMETER_INVALID, str(error)) from error


def exists(request: Callable[[], object], missing: Code) -> bool:
    """Whether the request succeeds; False if it fails with the code for a missing resource."""
    try:
        request()
    except LogHubError as error:
        if error.code == missing:
            return False
        raise
    return True
