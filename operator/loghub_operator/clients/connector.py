"""Which client of the log service the operator uses for an endpoint."""

from collections.abc import Callable

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub
from loghub.client.transport import Timeouts
from loghub_operator.clients.log_service_pool import Connect

# One slow endpoint holds one of the threads for so long at most.
TIMEOUTS = Timeouts(connect_s=3.0, read_s=5.0, total_s=10.0)
AGENT = "loghub-operator"


def connector(uses_sdk: Callable[[str], bool]) -> Connect:
    """Clients by the vendor's SDK or our own adapter, as ``uses_sdk`` answers for an endpoint's URL."""

    def connect(endpoint: str, project: str, credentials: Credentials) -> LogHub:
        if not uses_sdk(endpoint):
            return HttpLogHub(endpoint, project, credentials=credentials, agent=AGENT, timeouts=TIMEOUTS)
        # Here, so that an operator without such an endpoint never loads the SDK.
        from loghub.client.aliyun import AliyunLogHub

        return AliyunLogHub(endpoint, project, credentials=credentials, agent=AGENT, timeouts=TIMEOUTS)

    return connect
