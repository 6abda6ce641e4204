"""What of the errors of user code lets its logs come again forever, and what counts against them."""

import asyncio
import errno
import gzip
import urllib.error
from email.message import Message

import pytest
import requests

from loghub.wire.errors import Code, EndpointUnreachable, LogHubError
from loghub_consumer.failure.outage import UnavailableError, description, is_outage
from loghub_consumer.failure.policy import Cause
from loghub_consumer.processor import ShardLostError
from loghub_worker.query.batch_errors import failure_of
from loghub_worker.query.transform import PipelineError


def of_urllib(status: int) -> Exception:
    return urllib.error.HTTPError("http://x", status, "no", Message(), None)


def of_requests(status: int) -> Exception:
    answer = requests.Response()
    answer.status_code = status
    return requests.HTTPError(f"{status}", response=answer)


OUTAGES: list[Exception] = [
    UnavailableError("no database"),
    ShardLostError("shard 0"),
    ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    TimeoutError("no answer"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EMFILE, "Too many open files"),
    PermissionError(errno.EACCES, "Permission denied"),
    OSError("of a library, without a number"),
    requests.ConnectionError("refused"),
    requests.Timeout("no answer"),
    urllib.error.URLError(ConnectionRefusedError()),
    of_urllib(503),
    of_urllib(401),
    of_requests(500),
    of_requests(429),
    EndpointUnreachable("http://x", "refused", definite=True),
    LogHubError.of(Code.SERVER_BUSY),
]
# A log may have the name of a file, or be the body of a request.
OF_THE_LOGS: list[Exception] = [
    ValueError("bad"),
    FileNotFoundError(errno.ENOENT, "No such file or directory"),
    IsADirectoryError(errno.EISDIR, "Is a directory"),
    OSError(errno.ENAMETOOLONG, "File name too long"),
    gzip.BadGzipFile("Not a gzipped file"),
    of_urllib(400),
    of_urllib(413),
    of_requests(422),
    LogHubError.of(Code.POST_BODY_TOO_LARGE),
]


def name_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("error", OUTAGES, ids=name_of)
def test_what_a_processor_needs_is_away(error: Exception) -> None:
    assert is_outage(error)
    assert is_outage(
        ExceptionGroup("unhandled errors", [ValueError("bad"), ExceptionGroup("inner", [error])])
    )
    assert description(ExceptionGroup("unhandled errors", [ValueError("bad"), error])) == description(error)


@pytest.mark.parametrize("error", OF_THE_LOGS, ids=name_of)
def test_what_only_speaks_of_the_logs_counts_against_them(error: Exception) -> None:
    assert not is_outage(error)
    assert not is_outage(ExceptionGroup("unhandled errors", [error, ValueError("bad")]))
    assert description(ExceptionGroup("unhandled errors", [error, ValueError("bad")])) == description(error)


@pytest.mark.parametrize(
    ("error", "cause"), [(OUTAGES[0], Cause.UNAVAILABLE), (OF_THE_LOGS[1], Cause.REJECTED)]
)
def test_the_function_of_a_pipeline_is_judged_alike(error: Exception, cause: Cause) -> None:
    raised = PipelineError("run: failed")
    raised.__cause__ = error
    assert failure_of(raised).cause is cause


def test_a_task_group_raises_such_a_group() -> None:
    async def send() -> None:
        raise ConnectionRefusedError("of the endpoint")

    async def process() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(process())
    assert is_outage(caught.value)
    assert description(caught.value) == "ConnectionRefusedError: of the endpoint"
