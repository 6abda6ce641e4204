"""The decisions of the commit log: whether a batch is committed or aborted.

``batches/<batch>.json`` is created only if absent, so there is one decision for a batch, which never changes.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
import structlog

from loghub_worker.sink.log_storage import DamagedRecordError, LogStorage, decode_json, read_json

log = structlog.get_logger()

FOLDER = "batches"
REMEMBERED = 1024  # decisions to commit, so that an acknowledgement need not read them


class BatchDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a batch. Once made, it never changes."""

    committed: bool
    claims: list[str] = []  # names of claims
    files: list[str] = []  # as they were staged, with the folders of their partitions


ABORTED = BatchDecision(committed=False)


class BatchDecisions:
    """The decisions in one storage, which several workers make at the same time. Thread-safe."""

    def __init__(self, storage: LogStorage) -> None:
        self._storage = storage
        self._lock = threading.Lock()
        self._known: dict[str, BatchDecision] = {}

    def make(self, batch: str, decision: BatchDecision, *, names_in: str | None = None) -> BatchDecision:
        """Make this decision unless one was made; the names of the records in `names_in` are durable before.
        Return the decision in effect."""
        name = _name(batch)
        with self._storage.creating(msgspec.json.encode(decision), names_in=names_in) as create_as:
            (content,) = create_as([name])
        self.flush()
        in_effect = decode_json(self._storage, name, content, BatchDecision)
        self._remember({batch: in_effect})
        return in_effect

    def _remember(self, decisions: Mapping[str, BatchDecision]) -> None:
        """Those to commit, which are read again when their claims are acknowledged."""
        with self._lock:
            self._known |= {batch: one for batch, one in decisions.items() if one.committed}
            while len(self._known) > REMEMBERED:
                del self._known[next(iter(self._known))]

    def flush(self) -> None:
        """Make all decisions durable, also those of others."""
        self._storage.flush(FOLDER)

    def read(self, batches: Collection[str]) -> dict[str, BatchDecision]:
        """Those of the decisions that were made."""
        names = {_name(batch): batch for batch in batches}
        contents = self._storage.read(names.keys())
        found = {
            names[name]: decode_json(self._storage, name, content, BatchDecision)
            for name, content in contents.items()
        }
        self._remember(found)
        return found

    def known(self, batches: Iterable[str]) -> dict[str, BatchDecision]:
        """The same, of which those are remembered that this process has made or read."""
        wanted = list(batches)
        with self._lock:
            decisions = {batch: self._known[batch] for batch in wanted if batch in self._known}
        return decisions | self.read([batch for batch in wanted if batch not in decisions])

    def remove(self, batches: Collection[str]) -> None:
        """Remove decisions that nobody needs any more."""
        self._storage.remove([_name(batch) for batch in batches])
        with self._lock:
            for batch in batches:
                self._known.pop(batch, None)

    def remove_aborts(self, *, older_than_s: float, now_unix_s: float) -> list[str]:
        """Remove the aborts of this age. Return the batches of this age that are committed."""
        committed = []
        for name, age_s in self._storage.ages_s(FOLDER, now_unix_s).items():
            if not name.endswith(".json") or age_s <= older_than_s:
                continue
            with damage_logged():
                decision = read_json(self._storage, f"{FOLDER}/{name}", BatchDecision)
                if decision is not None and decision.committed:
                    committed.append(name.removesuffix(".json"))
                elif decision is not None:
                    self._storage.remove([f"{FOLDER}/{name}"])
        return committed


@contextmanager
def damage_logged() -> Iterator[None]:
    """Damage concerns the shards of one batch, which report it when they are resumed."""
    try:
        yield
    except DamagedRecordError as error:
        log.warning("a record of the sink is damaged", message=str(error))


def _name(batch: str) -> str:
    return f"{FOLDER}/{batch}.json"
