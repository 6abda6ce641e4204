"""Rounds in which programs are measured in turn, so that a slow minute of the machine meets all of them."""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

ROUNDS = 5
T = TypeVar("T")


def in_turn(programs: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each program returned, round by round. Each round runs all of them, in this order."""
    results: dict[str, list[T]] = {name: [] for name in programs}
    for number in range(rounds):
        for name, program in programs.items():
            print(f"round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            results[name].append(program())
    return results


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Of the two in each round."""
    return [one / other for one, other in zip(over, under, strict=True)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, the least and the greatest."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
