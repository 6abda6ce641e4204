"""Whether an error of user code means that a service it needs is unavailable, so that the logs are not to
blame.

Programs, workers, `fan_out` and the functions of pipelines share one rule: logs that meet an outage are tried
again, and neither skipped nor dead-lettered. In doubt an error is an outage, since that loses nothing.
"""

import errno
import gzip
from http import HTTPStatus

from loghub.wire.errors import LogHubException
from loghub_consumer.errors import rejects_content, text_of

# Errors of a file system about a name or an argument, which a processor may have from a log. All other errors
# of the operating system concern its disk, its network or this process.
OF_A_NAME = frozenset(
    {
        errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP,
        errno.ENOTEMPTY, errno.EINVAL, errno.EILSEQ, errno.EFBIG,
    }
)  # fmt: skip
# Status codes of an unavailable service. The other codes from 400 to 499 say that the request cannot be
# accepted, so they are about its logs.
AWAY = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_EARLY,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)


class BlamelessError(Exception):
    """Something failed, and the logs are not to blame, for whatever reason."""


class UnavailableError(BlamelessError):
    """For `Processor.process` to raise when the logs are not to blame, for example if a database is
    unavailable: the logs are tried again, and neither skipped nor dead-lettered. `OSError` (thus
    `ConnectionError` and `TimeoutError`) and `LogHubException` usually mean the same (docs/processor.md
    4.1)."""


def is_outage(error: BaseException) -> bool:
    """Whether the logs are not to blame. A group of exceptions, as an `asyncio.TaskGroup` raises it, is an
    outage if any of its exceptions is: a problem of the logs shows when the outage is over."""
    return _is_outage(decisive(error))


def decisive(error: BaseException) -> BaseException:
    """The decisive exception of a group of exceptions, which is also the one that users read; otherwise the
    error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    decisive_errors = [decisive(one) for one in error.exceptions]
    return next(filter(_is_outage, decisive_errors), decisive_errors[0])


def description(error: BaseException) -> str:
    """The type and the message of the decisive exception."""
    counts = decisive(error)
    return f"{type(counts).__name__}: {text_of(counts)}"


def _is_outage(error: BaseException) -> bool:
    if isinstance(error, BlamelessError):
        return True
    if isinstance(error, LogHubException):
        return not rejects_content(error)
    status = _http_status(error)
    if status is not None:
        return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in AWAY
    return (
        isinstance(error, OSError)
        and error.errno not in OF_A_NAME
        and not isinstance(error, gzip.BadGzipFile)
    )


def _http_status(error: BaseException) -> int | None:
    """The status of an HTTP answer that a library raises, as urllib, requests and httpx do; None without
    one."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None and isinstance(error, OSError):
        status = getattr(error, "code", None)
    return status if isinstance(status, int) else None
