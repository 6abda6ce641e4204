"""Covering arrays: few rows in which each pair of values of any two settings occurs at least once.

Most faults between features need two of them. A row is built around the first pair that no row has yet. Each
further setting takes the value that completes the most such pairs; of equal ones, another one in each row.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import TypeAlias

Cell: TypeAlias = tuple[str, str]  # a setting and its value
Pair: TypeAlias = frozenset[Cell]
Row: TypeAlias = dict[str, str]


def covering_rows(factors: Mapping[str, Sequence[str]], excluded: Collection[Pair]) -> list[Row]:
    """`excluded` are the pairs that cannot be together, and so is in no row what follows from them."""
    missing = dict.fromkeys(pairs_of(factors))  # in order
    rows: list[Row] = []
    while missing:
        first = next(iter(missing))
        row = next(_completed(dict(first), factors, excluded, missing), None)
        if row is None:
            del missing[first]  # others exclude it
            continue
        rows.append({name: row[name] for name in factors})
        for pair in pairs_in(row):
            missing.pop(pair, None)
    return rows


def any_row(factors: Mapping[str, Sequence[str]], excluded: Collection[Pair], dice: Random) -> Row:
    """A row by chance."""
    names = dice.sample(list(factors), len(factors))
    shuffled = {name: dice.sample(factors[name], len(factors[name])) for name in names}
    row = next(_completed({}, shuffled, excluded, ()))
    return {name: row[name] for name in factors}


def pairs_of(factors: Mapping[str, Sequence[str]]) -> Iterator[Pair]:
    for (one, values), (other, others) in combinations(factors.items(), 2):
        yield from (frozenset({(one, value), (other, of_other)}) for value in values for of_other in others)


def pairs_in(row: Row) -> Iterator[Pair]:
    return map(frozenset, combinations(row.items(), 2))


def _completed(
    row: Row, factors: Mapping[str, Sequence[str]], excluded: Collection[Pair], missing: Collection[Pair]
) -> Iterator[Row]:
    """The rows with these values, the most useful ones first."""
    if any(pair in excluded for pair in pairs_in(row)):
        return
    name = next((name for name in factors if name not in row), None)
    if name is None:
        yield row
        return

    def gain(value: str) -> int:
        return sum(frozenset({(name, value), cell}) in missing for cell in row.items())

    turn = len(missing) % len(factors[name])
    values = [*factors[name][turn:], *factors[name][:turn]]
    for value in sorted(values, key=gain, reverse=True):
        yield from _completed({**row, name: value}, factors, excluded, missing)
