"""Connections to the logstore, one for each process of Spark, and its errors in the words of the options.

A key in the environment or in a folder is read where the request is sent, on the driver and on executors, and
again for each request, so that it can rotate. Only a key in an option travels with the tasks.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from loghub.client.credentials_dir import read_key
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError, LogHubException
from loghub_spark.options import ENV_KEY_ID, ENV_KEY_SECRET, ENV_TOKEN, LogstoreConnection, LogstoreError

AGENT = "spark"


@cache
def client_of(connection: LogstoreConnection) -> LogHub:
    """The connection of this process, open until it ends (Spark reuses its Python processes)."""
    return HttpLogHub(
        connection.endpoint, connection.project, credentials=partial(_key_of, connection), agent=AGENT
    )


def _key_of(connection: LogstoreConnection) -> Credentials:
    if connection.key is not None:
        return connection.key
    if connection.credentials_dir:
        return read_key(Path(connection.credentials_dir))
    key = Credentials(
        access_key_id=os.environ.get(ENV_KEY_ID, ""),
        access_key_secret=os.environ.get(ENV_KEY_SECRET, ""),
        security_token=os.environ.get(ENV_TOKEN, ""),
    )
    if not key.access_key_id or not key.access_key_secret:
        message = f"{ENV_KEY_ID} and {ENV_KEY_SECRET} are not set for this process of Spark"
        raise LogHubError(Code.UNAUTHORIZED, 401, message)
    return key


@contextmanager
def explained(connection: LogstoreConnection) -> Iterator[None]:
    """Errors of the log service as `LogstoreError`, with the place and what to do."""
    try:
        yield
    except LogHubException as error:
        place = f"{connection.name} at {connection.endpoint}"
        raise LogstoreError(f"{place}: {error}{_advice(error)}") from error


def _advice(error: LogHubException) -> str:
    if isinstance(error, EndpointUnreachable):
        return ". Check the option endpoint, and that this machine reaches it"
    if not isinstance(error, LogHubError):
        return ""
    if error.code == Code.PROJECT_NOT_EXIST:
        return ". Check the options project and endpoint"
    if error.code == Code.LOG_STORE_NOT_EXIST:
        return ". Check the option logstore, or create the logstore"
    if error.status in (401, 403):
        return ". Check the access key and its rights (docs/data-source.md)"
    return ""
