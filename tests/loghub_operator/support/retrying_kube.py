"""The Kubernetes port of whoever is played beside an operator in the same process.

What for: players and stories whose calls outlive an operator that ends in their loop. What it must not
know: who they are. Read next: `harness`.

Kopf, when it ends, cancels every task of its loop that is younger than itself. So it also takes what
aiohttp has just begun for a call of somebody else: the body is then never sent, or the name never
looked up, and the call is cancelled or waits for an answer in vain.
"""

import asyncio
from typing import Any

from loghub_operator.clients.kube import AioKube, KubeError
from tests.loghub_operator.support.examples import Document

TRIES = 3


class Insistent(AioKube):
    """Asks again where there was no answer, and nobody told it to stop."""

    async def _call(self, *args: Any, **kwargs: Any) -> Document:
        for _ in range(TRIES - 1):
            try:
                return await super()._call(*args, **kwargs)
            except asyncio.CancelledError:
                request = asyncio.current_task()
                if request is None or request.cancelling():
                    raise
            except KubeError as error:
                if error.status != 0:
                    raise
        return await super()._call(*args, **kwargs)
