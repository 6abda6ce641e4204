"""The Kubernetes port of simulated parts that run with an operator in the same process.

Their calls survive an operator that ends in their loop: Kopf, when it ends, cancels every task of its loop
that is younger than itself. It thereby also cancels what aiohttp has just started for a call of another part:
the body is then never sent, or the name never resolved, and the call is cancelled or waits for an answer in
vain.
"""

import asyncio
from typing import Any

from loghub_operator.clients.kube import AioKube, KubeError
from tests.loghub_operator.support.examples import Document

TRIES = 3


class Insistent(AioKube):
    """Repeats a call without an answer, unless it was cancelled."""

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
