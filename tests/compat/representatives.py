"""Which of the clients stands for all of them in a test, so that `make test` starts few of them."""

from collections.abc import Sequence

import pytest


def representative(argument: str, everyone: Sequence[str], chosen: str) -> pytest.MarkDecorator:
    """A test for each client: in `make test` for the chosen one, in `make check-deep` for the others.

    The tests take turns, so that each client stands for all in some of them.
    """
    rest = (pytest.param(name, marks=pytest.mark.deep) for name in everyone if name != chosen)
    return pytest.mark.parametrize(argument, [chosen, *rest])


def together(everyone: Sequence[str], *, count: int) -> pytest.MarkDecorator:
    """A test whose ``languages`` are all clients at the same time in `make test`, and in `make check-deep`
    so many of each."""
    alone = (pytest.param((name,) * count, id=name, marks=pytest.mark.deep) for name in everyone)
    return pytest.mark.parametrize("languages", [pytest.param(tuple(everyone), id="together"), *alone])
