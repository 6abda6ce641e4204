"""Narrows an observation of the log service to what a test expects."""

from loghub_operator.model.observed import Available, LogServiceObserved, Unavailable


def available(service: LogServiceObserved) -> Available:
    assert isinstance(service, Available), service
    return service


def unavailable(service: LogServiceObserved) -> Unavailable:
    assert isinstance(service, Unavailable), service
    return service
