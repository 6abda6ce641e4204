"""What the operator's tests share."""

from tests.cluster.fixtures import apiserver  # noqa: F401 - a fixture
