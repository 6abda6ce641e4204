"""The recorded series of (resource, observed) -> (actions, status), for every executor.

What for: one contract; `plan` is tried on it, and each executor's loop is fed with it and
has to ask for the same actions and tell the same status. What it must not know: executors.
Read next: the files in ``series/``.

``python -m tests.loghub_operator.stories`` writes the expected half anew from `plan`; commit
a changed expectation only when you can explain it.

A file has an ``intent``, a ``spec`` (merged into `examples.MINIMAL`), ``steps`` and, where the object
is not new at the first of them, what its ``status`` says by then. A step's ``spec``,
``metadata`` and ``observed`` are merged into those of the step before (a list replaces, null
removes); its ``now`` counts seconds from `EPOCH`; the status of a step is the resource's
status in the next one, and so is what `plan` remembers.
"""

import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from loghub_operator.api import LogHubConsumerGroup, Status, parse_resource
from loghub_operator.braking import NO_MENDS
from loghub_operator.model import Action, Observed
from loghub_operator.plan import plan
from loghub_operator.scaling.memory import NOTHING
from tests.loghub_operator.examples import Document, document, merge

FOLDER = Path(__file__).parent / "series"
# Ten times as fast where libyaml is there.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
EPOCH = 1_790_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One round: what is given, and what has to come of it."""

    story: str
    number: int
    name: str
    resource: LogHubConsumerGroup
    observed: Observed
    now: float
    actions: tuple[Document, ...]
    status: Document

    def __str__(self) -> str:
        return f"{self.story}-{self.number}-{self.name.replace(' ', '-')}"


def recorded(action: Action) -> Document:
    """An action as it stands in a file; a configuration is told by its hash."""
    fields: Document = msgspec.json.decode(msgspec.json.encode(action))
    fields.pop("config", None)
    return {"action": type(action).__name__, **fields}


def stories() -> tuple[Path, ...]:
    return tuple(sorted(FOLDER.glob("*.yaml")))


def steps(path: Path) -> Iterator[Step]:
    """The steps of one story, each with everything that it stands on."""
    return iter(_steps(path.stem, path.read_text()))


@functools.cache  # three modules try all of them
def _steps(name: str, text: str) -> tuple[Step, ...]:
    return tuple(_played(name, yaml.load(text, Loader=LOADER)))


def _played(name: str, story: Document) -> Iterator[Step]:
    base, observed = document(story.get("spec"), uid="uid-1", generation=1), _observed(story)
    base["status"] = story.get("status", {})
    memory, mends = NOTHING, NO_MENDS
    for number, step in enumerate(story["steps"], 1):
        merge(base["spec"], step.get("spec", {}))
        merge(base["metadata"], step.get("metadata", {}))
        merge(observed, step.get("observed", {}))
        now = EPOCH + step["now"]
        resource = parse_resource(copy.deepcopy(base))
        seen = replace(observed_at(observed, now), memory=memory, mends=mends)
        planned = plan(resource, seen, now)
        memory, mends = planned.memory, planned.mends
        yield Step(
            story=name,
            number=number,
            name=step["name"],
            resource=resource,
            observed=seen,
            now=now,
            actions=tuple(step.get("actions", ())),
            status=step.get("status", {}),
        )
        base["status"] = step.get("status", {})


def observed_at(given: Document, now: float) -> Observed:
    """An `Observed` from a file: times in it count from `EPOCH` too."""
    made = copy.deepcopy(given)
    for worker in made.get("workers", []):
        if "drain_requested_at_unix_s" in worker:
            worker["drain_requested_at_unix_s"] += EPOCH
    for shard in made.get("service", {}).get("shards", []):
        if "checkpoint_unix_s" in shard:
            shard["checkpoint_unix_s"] += EPOCH
    return msgspec.convert({"worker_set": None, "at_unix_s": now, **made}, Observed)


def _observed(story: Document) -> Document:
    site = {"endpoint": "http://loghub.svc", "sink_root": "/sink", "needs_project_address": True}
    made: Document = {"site": site, "service": {}}
    merge(made, story.get("observed", {}))
    return made


def told(status: Status) -> Document:
    """A status as it stands in a file."""
    return status.to_dict()


def write_anew(path: Path) -> None:
    """The expected half of one story, from `plan`."""
    story: dict[str, Any] = yaml.load(path.read_text(), Loader=LOADER)
    for number in range(len(story["steps"])):
        # Steps build on the status before them, so they are written one after the other.
        step = list(steps(path))[number]
        planned = plan(step.resource, step.observed, step.now)
        story["steps"][number]["actions"] = [recorded(action) for action in planned.actions]
        story["steps"][number]["status"] = told(planned.status)
        path.write_text(yaml.safe_dump(story, sort_keys=False, width=110, allow_unicode=True))


if __name__ == "__main__":
    for one in stories():
        write_anew(one)
