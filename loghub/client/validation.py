"""What every adapter checks before it asks, so that all refuse in the same words.

What for: a name that is not legal must not become part of a path; the answer is the one the
service would give. What it must not know: how a call is sent. Read next: `loghub.wire.names`.
"""

from collections.abc import Callable

from loghub.wire import names
from loghub.wire.errors import Code, LogHubError, MalformedName

MAX_PULL_COUNT = 1000


def check_logstore(logstore: str) -> str:
    """The name itself, or LogHubError ParameterInvalid."""
    return _check(names.LOGSTORE, logstore)


def check_group(group: str) -> str:
    """The name itself, or LogHubError ParameterInvalid."""
    return _check(names.CONSUMER_GROUP, group)


def check_count(count: int) -> int:
    """PullLogs takes 1 to 1000 groups (docs/sls-protocol.md 5)."""
    if not 1 <= count <= MAX_PULL_COUNT:
        raise LogHubError.of(Code.PARAMETER_INVALID, f"count must be 1 to {MAX_PULL_COUNT}, not {count}")
    return count


def _check(rule: names.NameRule, name: str) -> str:
    try:
        return rule.check(name)
    except MalformedName as error:
        raise LogHubError.of(Code.PARAMETER_INVALID, str(error)) from error


def exists(ask: Callable[[], object], missing: Code) -> bool:
    """False when the question ends in the code that says that it does not."""
    try:
        ask()
    except LogHubError as error:
        if error.code == missing:
            return False
        raise
    return True
