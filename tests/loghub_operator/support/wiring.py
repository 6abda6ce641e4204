"""An observer and an applier over any Kubernetes and log-service clients, connected as the program does."""

from typing import Any

from loghub.clock import Clock
from loghub_operator.apply.applier import Applier
from loghub_operator.apply.event_recorder import EventRecorder
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.logservice.access import LogServiceAccess
from loghub_operator.logservice.secret_credentials import SecretCredentials
from loghub_operator.observe.drift_detector import DriftDetector
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.observe.observer import Observer
from loghub_operator.settings import Settings


def observer_and_applier(
    kube: Any, pool: LogServicePool, *, settings: Settings, clock: Clock
) -> tuple[Observer, Applier]:
    drift = DriftDetector(kube=kube, clock=clock, every_s=3600.0)
    log_service = LogServiceAccess(
        pool=pool,
        endpoint=lambda resource: settings.endpoint(resource.spec.endpoint),
        credentials=SecretCredentials(kube),
        clock=clock,
    )
    observer = Observer(
        kube=kube,
        log_service=log_service,
        group_index=GroupIndex(settings),
        drift=drift,
        settings=settings,
        clock=clock,
    )
    applier = Applier(
        kube=kube,
        log_service=log_service,
        wrote=drift.wrote,
        events=EventRecorder(kube=kube, clock=clock, instance="operator-0"),
        settings=settings,
        clock=clock,
    )
    return observer, applier
