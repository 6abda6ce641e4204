"""``python -m tests.loghub_operator.support.crashing_operator WHEN SITE``: the operator, which kills itself
with -9 at that call, as in `tests.faults.test_crash_points`, but as a whole process.
"""

import asyncio
import os
import signal
import sys

from loghub_operator.clients.kube import AioKube, configured
from loghub_operator.clients.log_service import connector
from loghub_operator.controller import app
from loghub_operator.settings import Settings
from tests.loghub_operator.support.crash_injection import Fate, MortalKube, mortal_connect


class At:
    """The first call at this site."""

    def __init__(self, site: str, when: str) -> None:
        self._moment = (site, when)

    def strikes(self, site: str, when: str, *, write: bool) -> bool:
        return (site, when) == self._moment


async def main() -> None:
    fate = Fate(At(sys.argv[2], sys.argv[1]), lambda: os.kill(os.getpid(), signal.SIGKILL))
    settings = Settings.from_environment(os.environ)
    async with AioKube(await configured()) as kube:
        connect = mortal_connect(connector(settings.uses_sdk, settings.address_of), fate)
        await app.run(settings, asyncio.Event(), connect=connect, kube=MortalKube(kube, fate))


if __name__ == "__main__":
    asyncio.run(main())
