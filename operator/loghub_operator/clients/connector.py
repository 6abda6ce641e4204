"""Selects the log-service client for an endpoint: the vendor's SDK or this project's own HTTP adapter."""

from collections.abc import Callable

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub
from loghub.client.target import EndpointAt
from loghub.client.transport import Timeouts
from loghub_operator.clients.log_service_pool import Connect

# The longest that a slow endpoint can block one of the pool's threads.
TIMEOUTS = Timeouts(connect_s=3.0, read_s=5.0, total_s=10.0)
AGENT = "loghub-operator"


def connector(uses_sdk: Callable[[str], bool], address_of: Callable[[str], str]) -> Connect:
    """Returns a function that opens clients; ``uses_sdk`` decides by the endpoint's URL whether the vendor's
    SDK or our own adapter is used, and ``address_of`` where the latter connects to ("": to the host of the
    project)."""

    def connect(endpoint: str, project: str, credentials: Credentials) -> LogHub:
        if not uses_sdk(endpoint):
            address = address_of(endpoint)
            place = EndpointAt(url=endpoint, address=address) if address else endpoint
            return HttpLogHub(place, project, credentials=credentials, agent=AGENT, timeouts=TIMEOUTS)
        # Imported inside the function so that an operator without such an endpoint never loads the SDK.
        from loghub.client.aliyun import AliyunLogHub

        return AliyunLogHub(endpoint, project, credentials=credentials, agent=AGENT, timeouts=TIMEOUTS)

    return connect
