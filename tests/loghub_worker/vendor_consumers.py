"""Programs on the vendor's consumer libraries, for Python and for Go, as their documentation shows them.

Both save each batch as ours do, and end once they have had a number of log groups. They reach loopback
through the service's forward-proxy mode (docs/sls-protocol.md 1.1).
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.cluster import compiling
from tests.compat.consumers import GO
from tests.loghub_consumer.support import GROUP, PROJECT, Site
from tests.support import ROOT

PYTHON = """
import sys, threading
from aliyun.log.consumer import ConsumerProcessorBase, ConsumerWorker, LogHubConfig
endpoint, key, secret, project, logstore, group, expected, read = sys.argv[1:]
lock, seen, done = threading.Lock(), [0], threading.Event()

class Nothing(ConsumerProcessorBase):
    def process(self, log_groups, tracker):
        if read == "logs":
            for group in log_groups.LogGroups:
                for log in group.Logs:
                    [(one.Key, one.Value) for one in log.Contents]
        with lock:
            seen[0] += len(log_groups.LogGroups)
        if seen[0] >= int(expected):
            done.set()
        self.save_checkpoint(tracker)

config = LogHubConfig(
    endpoint, key, secret, project, logstore, group, "vendor", heartbeat_interval=5, data_fetch_interval=0.2
)
worker = ConsumerWorker(Nothing, config)
worker.start()
done.wait()
worker.shutdown()
worker.join()
"""


def run_python(site: Site, groups: int, read: str) -> None:
    """Read everything; `read` is ``nothing`` or ``logs``."""
    _run(site, [sys.executable, "-c", PYTHON], groups, read)


def run_go(site: Site, groups: int, read: str) -> None:
    """As `run_python`. Raises `BuildError`."""
    _run(site, [str(compiling.ensure(GO) / "count")], groups, read)


def _run(site: Site, program: Sequence[str], groups: int, read: str) -> None:
    key = site.service.credentials
    where = ("http://sls.invalid", key.access_key_id, key.access_key_secret, PROJECT, site.logstore, GROUP)
    subprocess.run(
        [*program, *where, str(groups), read],
        cwd=ROOT,
        env=os.environ | {"http_proxy": site.service.endpoint, "no_proxy": ""},
        stdout=subprocess.DEVNULL,
        check=True,
    )
