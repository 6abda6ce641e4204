"""What the operator and the log service would do with another number of workers. Pure.

The operator keeps to the same bounds (`loghub.domain.replica_bounds`), and the shards are dealt as the
embedded service deals them (`loghub.domain.balance`), so the plan is exact until something else changes. The
real SLS does not say how it deals shards: there the numbers are right, and which worker gets which shard is a
guess.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from loghub.domain.balance import ShardAssignment, balance
from loghub.domain.replica_bounds import ReplicaBounds
from loghub_cli.group_view import Document, name_of, status_of
from loghub_cli.output import Record

# A shard in these states has, or can have, a consumer.
_DEALT = frozenset({"not_alloc", "already_alloc", "transfer", "unknown"})
_LIMITS = {
    "Maximum": "spec.scaling.maxReplicas",
    "Minimum": "spec.scaling.minReplicas",
    "Shards": "the shards that a worker can hold",
}


def forecast(document: Document, requested: int) -> Record:
    """The number that would run, what limits it, which shards move, and what that number consumes."""
    spec, status = document["spec"], status_of(document)
    shards = [one for one in status.get("shards") or () if one.get("state") in _DEALT]
    subscribes = spec.get("subscription") is not None
    summary = status.get("shardSummary")
    bounds = ReplicaBounds(
        minimum=(spec.get("scaling") or {}).get("minReplicas", 0),
        maximum=(spec.get("scaling") or {}).get("maxReplicas", requested),
        # Workers beyond the shards of a subscription are stand-bys, or have single logs.
        shards=None if subscribes or summary is None else summary.get("assignable"),
    )
    workers, bound = bounds.cut(requested)
    now = status.get("replicas", 0)
    then = {} if subscribes else _dealt(shards, _names(document, workers))
    capacity = _capacity(document, workers, then)
    moved = [one["id"] for one in shards if one["id"] in then and then[one["id"]] != _counted_for(one)]
    return {
        "name": name_of(document),
        "requested": requested,
        "wouldRun": workers,
        "runsNow": now,
        "limitedBy": None if bound is None else _LIMITS[bound],
        "shardsThatMove": len(moved),
        **capacity,
        "notes": "; ".join(_notes(document, workers, now, capacity)) or None,
        "workers": list(_worker_rows(document, shards, then, max(workers, now))),
    }


def _names(document: Document, count: int) -> list[str]:
    return [f"{name_of(document)}-{ordinal}" for ordinal in range(count)]


def _counted_for(shard: Document) -> str | None:
    """Who has the shard, or gets it next."""
    return shard.get("nextConsumer") or shard.get("consumer")


def _dealt(shards: Sequence[Document], workers: Sequence[str]) -> dict[int, str]:
    assignments = [
        ShardAssignment(
            shard=one["id"],
            counted_for=_counted_for(one),
            under_way_from=one.get("consumer") if one.get("nextConsumer") else None,
        )
        for one in shards
    ]
    return balance(assignments, workers)


def _worker_rows(
    document: Document, shards: Sequence[Document], then: Mapping[int, str], count: int
) -> Iterator[Record]:
    for worker in _names(document, count):
        now = [one["id"] for one in shards if one.get("consumer") == worker]
        gets = [shard for shard, name in then.items() if name == worker]
        yield {
            "worker": worker,
            "now": sorted(now),
            "then": sorted(gets),
            "gains": sorted(set(gets) - set(now)),
            "gives": sorted(set(now) - set(gets)),
        }


def _capacity(document: Document, workers: int, then: Mapping[int, str]) -> dict[str, float | None]:
    """Of the rates that the operator has measured; the worker with the most shards is decisive."""
    inputs = (status_of(document).get("scaling") or {}).get("inputs") or {}
    rate, arrival = inputs.get("workerPerSecond"), inputs.get("arrivalPerSecond")
    lag = inputs.get("backlogLogs", inputs.get("lagLogGroups"))
    most = max(Counter(then.values()).values(), default=0)
    effective = len(then) / most if most else float(workers)
    capacity = None if rate is None else rate * effective
    return {
        "arrivalPerSecond": arrival,
        "capacityPerSecond": capacity,
        "backlog": lag,
        "secondsToCatchUp": _catch_up_s(capacity, arrival, lag),
    }


def _catch_up_s(capacity: float | None, arrival: float | None, lag: float | None) -> float | None:
    """None: unknown, or never."""
    if capacity is None or arrival is None or lag is None or capacity <= arrival:
        return None
    return lag / (capacity - arrival)


def _notes(document: Document, workers: int, now: int, capacity: Mapping[str, float | None]) -> Iterator[str]:
    spec, status = document["spec"], status_of(document)
    consumes, arrives = capacity["capacityPerSecond"], capacity["arrivalPerSecond"]
    if consumes is not None and arrives is not None and consumes <= arrives:
        yield "as much arrives as these workers consume, or more: the lag grows"
    mode = (spec.get("scaling") or {}).get("mode", "Fixed")
    if mode == "Auto":
        yield "scaling.mode is Auto: the load decides; spec.replicas is only the number it begins with"
    elif mode == "External":
        yield "scaling.mode is External: an autoscaler sets spec.replicas"
    if spec.get("suspend"):
        yield "the group is paused: no worker runs until it is resumed"
    if spec.get("subscription") is not None:
        yield "the workers of a subscription share its shards, so none moves"
    if any(one.get("state") == "transfer" for one in status.get("shards") or ()):
        yield "nothing changes while a shard is in state transfer"
    if any(one.get("state") == "unknown" for one in status.get("shards") or ()):
        yield "the log service does not say how it deals shards: which worker gets which is a guess"
    if workers < now:
        yield f"workers leave one at a time, {name_of(document)}-{now - 1} first, each after its batch"
    summary = status.get("shardSummary") or {}
    if summary.get("total", 0) > len(status.get("shards") or ()):
        yield "the status does not list all shards, so neither does this"
