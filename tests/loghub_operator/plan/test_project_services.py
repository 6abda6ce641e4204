"""Which Services of projects are removed: those of projects that nobody names and that do not exist."""

from hypothesis import given
from hypothesis import strategies as st

from loghub_operator.controller.project_services import ProjectService, abandoned, in_turn, unnamed

names = st.sampled_from([f"p{n}" for n in range(6)])
some = st.frozensets(names)
services = st.lists(names, unique=True).map(
    lambda projects: tuple(ProjectService(name=one, uid=f"uid-{one}", project=one) for one in projects)
)


@given(services, some, some)
def test_a_service_goes_exactly_if_no_object_names_its_project_and_the_service_knows_none(
    given_services: tuple[ProjectService, ...], named: frozenset[str], missing: frozenset[str]
) -> None:
    gone = {one.project for one in abandoned(given_services, named=named, missing=missing)}
    assert gone == {one.project for one in given_services} & missing - named
    assert gone <= set(unnamed(given_services, named=named))


@given(st.lists(names, unique=True).map(lambda given: tuple(sorted(given))), names, st.integers(1, 4))
def test_every_project_gets_its_turn(projects: tuple[str, ...], after: str, maximum: int) -> None:
    asked: set[str] = set()
    for _ in range(-(-len(projects) // maximum)):
        turn = in_turn(projects, after=after, maximum=maximum)
        assert len(turn) == min(maximum, len(projects))
        asked |= set(turn)
        after = turn[-1]
    assert asked == set(projects)
