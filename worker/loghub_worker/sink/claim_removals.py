"""Which claims this process has removed, and is removing, so that it need not ask for them.

The decision on a batch goes with its last claim. The claims of a batch are acknowledged shard by shard, by
several threads at the same time. If each of them asked the storage whether the others are gone, the requests
would grow with the square of the number of shards. So of the threads that remove claims of one batch only the
last one asks, and only for the claims that other processes may have removed.
"""

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

REMEMBERED = 1024  # batches; of one that is forgotten the storage is asked


class ClaimRemovals:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._removing: Counter[str] = Counter()  # threads by batch
        self._removed: dict[str, set[str]] = {}  # names of claims by batch

    @contextmanager
    def removing(self, claims: Mapping[str, Collection[str]]) -> Iterator[list[str]]:
        """The body removes these claims, given by batch. When it has ended, the list has the batches of which
        no other thread removes claims any more. An error of the body leaves it unknown what was removed."""
        last: list[str] = []
        with self._lock:
            self._removing.update(claims.keys())
        is_done = False
        try:
            yield last
            is_done = True
        finally:
            with self._lock:
                for batch, names in claims.items():
                    self._removing[batch] -= 1
                    if is_done:
                        self._removed.setdefault(batch, set()).update(names)
                    if not self._removing[batch]:
                        del self._removing[batch]
                        last.append(batch)
                while len(self._removed) > REMEMBERED:
                    del self._removed[next(iter(self._removed))]

    def others(self, batch: str, claims: Sequence[str]) -> list[str]:
        """Those of the claims of a batch that this process has not removed."""
        with self._lock:
            removed: Collection[str] = self._removed.get(batch, ())
            return [name for name in claims if name not in removed]

    def forget(self, batches: Collection[str]) -> None:
        """These batches have no claims any more."""
        with self._lock:
            for batch in batches:
                self._removed.pop(batch, None)
