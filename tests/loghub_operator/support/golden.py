"""The recorded series of (resource, observed) -> (actions, status), for both backends.

`plan` is tested on them, and the loop of each backend is fed with them and must carry out the same actions
and report the same status.

``python -m tests.loghub_operator.support.golden`` rewrites the expected half from `plan`; commit a changed
expectation only if you can explain it.

A file has an ``intent``, a ``spec`` (merged into `examples.MINIMAL`), ``steps`` and, if the object is not new
at the first of them, its ``status`` by then. A step's ``spec``, ``metadata`` and ``observed`` are merged into
those of the previous step (a list replaces, null removes); its ``now`` counts seconds from `EPOCH`; the
status of a step is the resource's status in the next one, and so is what `plan` remembers.

A step records what it changes in the status of the previous step (`difference`), so that a renamed reason
changes one line for each time it appears, and a diff shows what a decision changed.
"""

import copy
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
import yaml

from loghub.contract.worker import WorkerConfig
from loghub_operator.api import LogHubConsumerGroup, Status, parse_resource
from loghub_operator.model.actions import Action
from loghub_operator.model.memory import NO_MEMORY, FieldPath, ObjectName
from loghub_operator.model.observed import Available, ObservedState, Placement, Unavailable
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.resources.worker_config import config_hash
from tests.loghub_operator.support.examples import Document, document, merge
from tests.loghub_operator.support.rounds import plan

FOLDER = Path(__file__).parent / "golden"
# Ten times as fast where libyaml is there.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TEMPLATE = "current"
EPOCH = 1_790_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One reconcile: what is given, and the expected result."""

    story: str
    number: int
    name: str
    resource: LogHubConsumerGroup
    observed: ObservedState
    drift: tuple[FieldPath, ...]
    now: float
    actions: tuple[Document, ...]
    status: Document

    def __str__(self) -> str:
        return f"{self.story}-{self.number}-{self.name.replace(' ', '-')}"


def recorded(action: Action) -> Document:
    """An action as it is in a file; a configuration is represented by its hash."""
    fields: Document = msgspec.json.decode(msgspec.json.encode(action))
    if "spec" in fields:
        fields["settings"] = fields.pop("spec")["revision"]["settings"]
    return {"action": type(action).__name__, **fields}


def stories() -> tuple[Path, ...]:
    return tuple(sorted(FOLDER.glob("*.yaml")))


def steps(path: Path) -> Iterator[Step]:
    """The steps of one story, each with everything that it depends on."""
    return iter(_steps(path.stem, path.read_text()))


def all_steps() -> Iterator[Step]:
    """Of every story."""
    return (step for path in stories() for step in steps(path))


def of_each_step(check: Callable[[Step], None]) -> Callable[[Path], None]:
    """A test for each story, of all of its steps. Those are made when it runs: collecting does not wait."""

    @pytest.mark.parametrize("story", stories(), ids=lambda path: path.stem)
    def test(story: Path) -> None:
        for step in steps(story):
            try:
                check(step)
            except AssertionError as error:
                error.add_note(f"at {step}")
                raise

    test.__doc__ = check.__doc__
    return test


@functools.cache  # three modules try all of them
def _steps(name: str, text: str) -> tuple[Step, ...]:
    return tuple(_played(name, yaml.load(text, Loader=LOADER)))


def _played(name: str, story: Document) -> Iterator[Step]:
    base, observed = document(story.get("spec"), uid="uid-1", generation=1), _observed(story)
    base["status"] = story.get("status", {})
    memory = NO_MEMORY
    for number, step in enumerate(story["steps"], 1):
        merge(base["spec"], step.get("spec", {}))
        merge(base["metadata"], step.get("metadata", {}))
        merge(observed, step.get("observed", {}))
        now = EPOCH + step["now"]
        resource = parse_resource(copy.deepcopy(base))
        if resource.metadata.deletion_timestamp and memory.deletion_seen_unix_s is None:  # as soon as it was
            memory = replace(memory, deletion_seen_unix_s=resource.metadata.deleted_at_unix_s())
        step_observed = replace(observed_at(resource, observed, now), memory=memory)
        drift = tuple(map(_field, (observed.get("worker_set") or {}).get("drift", ())))
        memory = plan(resource, step_observed, now, drift=drift).memory
        record = folded(base["status"])
        merge(record, step.get("status", {}))
        status = unfolded(record)
        yield Step(
            story=name,
            number=number,
            name=step["name"],
            resource=resource,
            observed=step_observed,
            drift=drift,
            now=now,
            actions=tuple(step.get("actions", ())),
            status=status,
        )
        base["status"] = status


def observed_at(resource: LogHubConsumerGroup, given: Document, now: float) -> ObservedState:
    """An `ObservedState` from a file: times in it count from `EPOCH` too.

    ``settings`` of a worker or of ``worker_set`` are those of its revision, whose pod template is the desired
    one unless ``pod_template`` is given; ``error`` of the log service means `Unavailable`.
    """
    fields = copy.deepcopy(given)
    service = fields.pop("service")
    for worker in fields.get("workers", []):
        worker["revision"] = _revision(worker)
        if "drain_requested_at_unix_s" in worker:
            worker["drain_requested_at_unix_s"] += EPOCH
    for shard in service.get("shards", []):
        if "checkpoint_unix_s" in shard:
            shard["checkpoint_unix_s"] += EPOCH
    if worker_set := fields.get("worker_set"):
        worker_set["revision"] = {**_revision(worker_set), "generation": resource.metadata.generation}
        worker_set.pop("drift", None)  # it is no part of an observation
    shards = [shard["shard"] for shard in service.get("shards", [])]
    last = max(shards, default=0)
    if origin := fields.pop("group_origin", None):
        fields["group_record"] = {"origin": origin, "last_initial_shard": last}
    if shards:
        fields["last_initial_shard"] = last
    placement = msgspec.convert(fields.pop("placement"), Placement)
    error = service.pop("error", None)
    hints = get_type_hints(ObservedState)
    values = {name: msgspec.convert(value, hints[name]) for name, value in fields.items()}
    return ObservedState(
        at_unix_s=now,
        placement=placement,
        environment=SameTemplate(),
        service=msgspec.convert(error, Unavailable) if error else msgspec.convert(service, Available),
        **{"worker_set": None, **values},
    )


@dataclass(frozen=True, slots=True)
class SameTemplate:
    """Workers whose pod template is always the same, and whose settings depend on no shard."""

    def worker_spec(self, resource: LogHubConsumerGroup, config: WorkerConfig) -> WorkerSpec:
        config = msgspec.structs.replace(config, last_initial_shard=None)
        generation = resource.metadata.generation
        revision = Revision(settings=config_hash(config), pod_template=TEMPLATE, generation=generation)
        return WorkerSpec(revision=revision, config=config)


@dataclass(frozen=True, slots=True)
class SameWorkers:
    """Workers that should run with the same, whatever the object says: for what does not depend on it."""

    spec: WorkerSpec

    def worker_spec(self, _resource: LogHubConsumerGroup, _config: WorkerConfig) -> WorkerSpec:
        return self.spec


def _revision(fields: Document) -> Document:
    return {"settings": fields.pop("settings"), "pod_template": fields.pop("pod_template", TEMPLATE)}


def _field(text: str) -> FieldPath:
    """A field as messages name it, such as "Service x spec.ports"."""
    kind, name, path = text.split(" ")
    return FieldPath(object=ObjectName(kind=kind, name=name), path=path)


def _observed(story: Document) -> Document:
    placement = {"endpoint": "http://loghub.svc", "sink_root": "/sink", "needs_project_address": True}
    observed: Document = {"placement": placement, "service": {}}
    merge(observed, story.get("observed", {}))
    return observed


def reported(status: Status) -> Document:
    """A status as the apiserver stores it."""
    return status.to_dict()


# Lists of the status whose items have a key, recorded as maps so that a change names its item.
KEYED = {"conditions": "type", "shards": "id"}
# What most items say; recorded where it is otherwise.
USUAL: dict[str, Document] = {"conditions": {}, "shards": {"readOnly": False, "parents": []}}


def folded(status: Document) -> Document:
    """A status with its keyed lists as maps, without what is as usual."""
    usual = _usual(status)
    return {
        name: {item[KEYED[name]]: _less(item, usual[name], KEYED[name]) for item in value}
        if name in KEYED
        else copy.deepcopy(value)
        for name, value in status.items()
    }


def unfolded(record: Document) -> Document:
    """The status of a record."""
    usual = _usual(record)
    return {
        name: [usual[name] | {KEYED[name]: key} | item for key, item in value.items()]
        if name in KEYED
        else value
        for name, value in record.items()
    }


def _usual(status: Document) -> dict[str, Document]:
    """A condition is usually about the generation that the whole status is about."""
    generation = (
        {"observedGeneration": status["observedGeneration"]} if "observedGeneration" in status else {}
    )
    return {**USUAL, "conditions": generation}


def _less(item: Document, usual: Document, key: str) -> Document:
    return {
        name: copy.deepcopy(value)
        for name, value in item.items()
        if name != key and (name not in usual or usual[name] != value)
    }


def difference(old: Document, new: Document) -> Document:
    """What `merge` needs to make the new record of the old one (RFC 7386)."""
    changed: Document = {name: None for name in old if name not in new}
    for name, value in new.items():
        if isinstance(value, dict) and isinstance(old.get(name), dict):
            if inner := difference(old[name], value):
                changed[name] = inner
        elif name not in old or old[name] != value:
            changed[name] = value
    return changed


def rewrite(path: Path) -> None:
    """The expected half of one story, from `plan`."""
    story: dict[str, Any] = yaml.load(path.read_text(), Loader=LOADER)
    before: Document = story.get("status", {})
    for number in range(len(story["steps"])):
        # Steps build on the status before them, so they are written one after the other.
        step = list(steps(path))[number]
        planned = plan(step.resource, step.observed, step.now, drift=step.drift)
        status = reported(planned.status)
        story["steps"][number]["actions"] = [recorded(action) for action in planned.actions]
        story["steps"][number]["status"] = difference(folded(before), folded(status))
        path.write_text(yaml.dump(story, Dumper=Plain, sort_keys=False, width=110, allow_unicode=True))
        before = status


class Plain(yaml.SafeDumper):
    """No anchors, and a small map on one line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "default_flow_style": None})


if __name__ == "__main__":
    for one in stories():
        rewrite(one)
