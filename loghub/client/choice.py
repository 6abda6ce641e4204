"""Which client talks to a log service: our own, or the vendor's SDK.

``http`` is our own client, the only one that reads the extensions of the embedded service. ``sdk`` is the
vendor's client, whose makers run its requests against the cloud. Both pass one contract suite. Only this
module imports the SDK, and only if it is chosen: the SDK needs protobuf below 6, and is only in the images of
the operator and of `worker-sdk`. Our own client is imported as it is opened: a process that runs user code
imports this module and connects to nothing, and HTTP would be half of its start.
"""

from collections.abc import Callable
from typing import Literal, get_args

from loghub.client.port import Credentials, LogHub, Timeouts
from loghub.client.target import BadEndpoint, EndpointAt
from loghub.extras import needs

ClientKind = Literal["http", "sdk"]


def check_client(kind: ClientKind) -> None:
    """Raises `ValueError` for another word, and `MissingPackageError` if the SDK is chosen and not there."""
    if kind not in get_args(ClientKind):
        raise ValueError(f"client is {kind!r}; it must be one of {', '.join(get_args(ClientKind))}")
    if kind == "sdk":
        _sdk_adapter()


def open_client(
    kind: ClientKind,
    endpoint: str | EndpointAt,
    project: str,
    *,
    credentials: Credentials | Callable[[], Credentials],
    agent: str = "",
    timeouts: Timeouts | None = None,
) -> LogHub:
    """A client of this kind, which the caller closes. Raises `BadEndpoint` and `MissingPackageError`."""
    if kind == "http":
        from loghub.client.http import HttpLogHub

        return HttpLogHub(endpoint, project, credentials=credentials, agent=agent, timeouts=timeouts)
    if isinstance(endpoint, EndpointAt):
        raise BadEndpoint(f"{endpoint}: the vendor SDK connects only to the host name of a project")
    return _sdk_adapter()(endpoint, project, credentials=credentials, agent=agent, timeouts=timeouts)


def _sdk_adapter() -> Callable[..., LogHub]:
    with needs("loghub-core[sdk]", "the log service's client sdk"):
        from loghub.client.aliyun import AliyunLogHub
    return AliyunLogHub
