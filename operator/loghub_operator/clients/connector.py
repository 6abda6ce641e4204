"""Selects the log-service client for an endpoint: the vendor's SDK or this project's own HTTP adapter."""

from collections.abc import Callable

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub
from loghub.client.transport import Timeouts
from loghub_operator.clients.log_service_pool import Connect

# The longest that a slow endpoint can block one of the pool's threads.
TIMEOUTS = Timeouts(connect_s=3.0, read_s=5.0, total_s=10.0)
AGENT = "loghub-operator"


def connector(uses_sdk: Callable[[str], bool]) -> Connect:
    """Returns a function that opens clients; ``uses_sdk`` decides by the endpoint's URL whether the vendor's
    SDK or our own adapter is used."""

    def connect(endpoint: str, project: str, credentials: Credentials) -> LogHub:
        if not uses_sdk(endpoint):
            return HttpLogHub(endpoint, project, credentials=credentials, agent=AGENT, timeouts=TIMEOUTS)
        # Imported inside the function so that an operator without such an endpoint never loads the SDK.
        from loghub.client.aliyun import AliyunLogHub

        return AliyunLogHub(endpoint, project, credentials=credentials, agent=AGENT, timeouts=TIMEOUTS)

    return connect
