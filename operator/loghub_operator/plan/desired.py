"""What one reconcile works towards: what the workers run with, the settings of the group, who owns it, and
whether workers should run at all.
"""

from dataclasses import dataclass

from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.model.observed import ObservedState, Peer, Stored, WorkerNames
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.plan.consumption import changing, connected, stored_now, stored_of, without_partners
from loghub_operator.plan.ownership import adoption_refusal, foreign_consumers, named, owner_of
from loghub_operator.plan.suspension import Suspension, suspension_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """``stored`` is what the log service should store by the spec, ``stored_now`` what it should store now.
    ``owner`` is another object that owns the group, and ``conflict`` says so to users, "" if there is none.
    ``refusal`` says why this object must not adopt the group; ``foreign`` are live consumers
    of it that are no workers of this object. ``suspension`` is the reason why no worker should run.
    """

    workers: WorkerSpec
    stored: Stored
    stored_now: Stored
    owner: Peer | None
    conflict: str
    refusal: str | None
    foreign: tuple[str, ...]
    suspension: Suspension | None

    @property
    def may_change_group(self) -> bool:
        return self.owner is None and self.refusal is None

    @property
    def revision(self) -> Revision:
        return self.workers.revision


def desired_state(
    resource: LogHubConsumerGroup,
    observed: ObservedState,
    workers: WorkerSpec,
    *,
    own: Peer,
    names: WorkerNames,
    runs_workers: bool,
) -> Desired:
    """Pure; the time is the time of the observation. ``workers`` is what the workers should run with, and
    ``names`` are their names. ``own`` is the object as the others see it; ``runs_workers``: workers of its
    group exist, or were requested.
    """
    wanted, existing = stored_of(resource), observed.stored
    # 1. Whether the group is this object's, and who else consumes it.
    owner = owner_of(own, observed.peers)
    conflict = "" if owner is None else _conflict(resource, own, owner)
    ours = names if observed.has_record or runs_workers else None
    live = foreign_consumers(observed.service, ours, observed.at_unix_s)
    foreign = without_partners(live, own, observed.peers)
    # A group that does not exist is created, and one that is recorded was adopted before.
    is_adopted = existing is not None and not observed.has_record
    refusal = adoption_refusal(resource.spec.adoption, resource.consumed, foreign) if is_adopted else None
    # 2. What follows for the workers, and for what the log service stores.
    consumers = connected(observed.service)
    change = changing(resource.consumed, wanted, existing, names.foreign(consumers))
    is_connected = runs_workers or bool(consumers)
    return Desired(
        workers=workers,
        stored=wanted,
        stored_now=stored_now(
            wanted, existing, observed.workers, workers.revision, is_connected=is_connected
        ),
        owner=owner,
        conflict=conflict,
        refusal=refusal,
        foreign=foreign,
        suspension=suspension_of(resource, observed, conflict=conflict, refusal=refusal, change=change),
    )


def _conflict(resource: LogHubConsumerGroup, own: Peer, owner: Peer) -> str:
    """Why this object must not consume while ``owner`` does, as a message for users."""
    name = named(owner, resource.metadata.namespace)
    if own.subscription is None or owner.subscription is None:
        return f"{name} owns {resource.consumed}, because it proved access to it first"
    if owner.subscription == own.subscription:
        return (
            f"{name} shares {resource.consumed} and has the name of this object, so their workers would have"
            " the same names; give one of the objects another name"
        )
    return (
        f"{name} consumes {resource.consumed} as {owner.subscription}, and this object as"
        f" {own.subscription}; give both the same type, key and inOrder, or choose another consumerGroup"
    )
