"""Tables of two dimensions of which `make test` takes each row once, with one column after the other."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def in_turn(rows: Iterable[tuple[Any, ...]], columns: Mapping[str, Any]) -> list[Any]:
    """Parameters for every pair of a row and a column, by the column's name. All but one of each row are
    deep."""
    return [
        pytest.param(
            *row,
            column,
            id="-".join([*map(_name, row), name]),
            # One further after each round, for rows that are a product themselves.
            marks=[] if (number + number // len(columns)) % len(columns) == place else pytest.mark.deep,
        )
        for number, row in enumerate(rows)
        for place, (name, column) in enumerate(columns.items())
    ]


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", value))
