"""The service of the tests of consumers."""

from tests.loghub_worker.consumer.conftest import service, site

__all__ = ["service", "site"]
