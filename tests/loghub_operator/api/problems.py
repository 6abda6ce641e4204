"""What `parse_resource` reports about an object, as the API server spells it."""

import re

import pytest

from loghub_operator.api import InvalidResourceError, parse_resource
from tests.loghub_operator.support.examples import Document


def in_kubernetes(path: str) -> str:
    """The apiserver's spelling of a place in a list."""
    return re.sub(r"\.(\d+)", r"[\1]", path)


def problems(value: Document, **options: Document) -> list[str]:
    old = parse_resource(options["old"]) if "old" in options else None
    with pytest.raises(InvalidResourceError) as caught:
        parse_resource(value, old=old)
    return [f"{in_kubernetes(problem.path)}: {problem.message}" for problem in caught.value.problems]
