"""Which connections stay when the bound is reached, decided on plain values."""

from loghub_service.connections.listener import HttpConnection, HttpConnections, peer_of


class _World:
    """Connections with names, and which of them were closed."""

    def __init__(self, maximum: int) -> None:
        self.connections = HttpConnections(maximum)
        self.closed: list[str] = []
        self.by_name: dict[str, HttpConnection] = {}

    def arrive(
        self, name: str, peer: str = "a", *, key: str = "", busy: bool = False, waiting: bool = False
    ) -> bool:
        connection = HttpConnection(peer=peer, abort=lambda: self.closed.append(name))
        self.by_name[name] = connection
        admitted = self.connections.admit(connection)
        if admitted and key:
            self.connections.authenticated(connection, key)
        connection.busy, connection.waiting = busy, waiting
        return admitted

    def counts(self) -> tuple[int, int]:
        return self.connections.unauthenticated_count, self.connections.authenticated_count


def test_below_the_bound_every_connection_is_admitted() -> None:
    world = _World(3)
    assert [world.arrive(name) for name in "xyz"] == [True] * 3
    assert (world.closed, world.counts()) == ([], (3, 0))


def test_the_oldest_unauthenticated_connection_of_the_busiest_peer_goes_first() -> None:
    world = _World(4)
    for name, peer in (("honest", "h"), ("1", "attacker"), ("2", "attacker"), ("3", "attacker")):
        world.arrive(name, peer)
    assert [world.arrive(name, "attacker") for name in "45"]
    assert world.arrive("late", "h")
    assert world.closed == ["1", "2", "3"]
    assert world.counts() == (4, 0)


def test_authenticated_connections_stay_while_others_can_go() -> None:
    world = _World(3)
    world.arrive("consumer", key="k")
    world.arrive("busy", key="k", busy=True)
    for number in range(50):
        assert world.arrive(str(number))
    assert world.closed == [str(number) for number in range(49)]
    assert world.counts() == (1, 2)


def test_among_authenticated_connections_the_longest_idle_one_of_the_busiest_key_goes() -> None:
    world = _World(4)
    world.arrive("few", key="tenant")
    for name in ("1", "2", "3"):
        world.arrive(name, key="greedy")
    world.by_name["2"].busy = True
    world.connections.authenticated(world.by_name["1"], "greedy")  # used just now, so 2 and 3 are idle longer
    assert world.arrive("new", "h")
    assert world.closed == ["3"]


def test_a_connection_is_refused_only_if_all_others_have_a_request_in_progress() -> None:
    world = _World(2)
    for name in ("1", "2"):
        world.arrive(name, key=f"key {name}", busy=True)
    assert not world.arrive("new")
    assert (world.closed, world.counts()) == ([], (0, 2))
    assert world.connections.refused == 1
    world.connections.forget(world.by_name["1"])
    assert world.arrive("again")


def test_a_key_of_few_connections_gives_up_an_idle_one_if_the_others_are_busy() -> None:
    world = _World(3)
    world.arrive("1", key="greedy", busy=True)
    world.arrive("2", key="greedy", busy=True)
    world.arrive("idle", key="tenant")
    assert world.arrive("new")
    assert world.closed == ["idle"]


def test_a_key_whose_requests_never_end_leaves_places_to_others() -> None:
    """It holds all places with requests whose bodies do not arrive; a quarter goes to new connections."""
    world = _World(8)
    for number in range(8):
        world.arrive(f"slow {number}", key="greedy", busy=True, waiting=True)
    for number in range(5):
        assert world.arrive(f"new {number}")
    assert world.closed == ["slow 0", "slow 1", "new 0", "new 1", "new 2"]
    assert world.counts() == (2, 6)
    world.connections.authenticated(world.by_name["new 4"], "consumer")
    assert world.arrive("another")
    assert world.closed[5:] == ["slow 2"]


def test_a_request_that_the_service_works_on_is_never_interrupted() -> None:
    world = _World(4)
    for name in "123":
        world.arrive(name, key="k", busy=True)
    world.arrive("slow", key="few", busy=True, waiting=True)
    assert world.arrive("new")
    assert world.arrive("newer")
    assert world.closed == ["slow", "new"]


def test_a_key_has_requests_in_progress_in_at_most_three_quarters_of_the_places() -> None:
    """Those could not be interrupted for another client, whose connection would be refused."""
    world = _World(8)
    for number in range(6):
        world.arrive(f"busy {number}", key="greedy", busy=True)
    for number in range(50):
        world.arrive(f"more {number}")
        assert not world.connections.authenticated(world.by_name[f"more {number}"], "greedy")
    assert world.counts() == (2, 6)
    assert world.arrive("consumer")
    assert world.connections.authenticated(world.by_name["consumer"], "tenant")
    assert world.connections.authenticated(world.by_name["busy 1"], "greedy")  # which goes on with its own
    world.by_name["busy 2"].waiting = True
    world.arrive("another")
    assert world.connections.authenticated(world.by_name["another"], "greedy")
    assert world.connections.refused == 0


def test_forgetting_twice_or_after_an_eviction_changes_nothing() -> None:
    world = _World(1)
    world.arrive("1")
    world.arrive("2")
    world.connections.forget(world.by_name["1"])
    assert world.counts() == (1, 0)
    world.connections.authenticated(world.by_name["1"], "k")  # its last request is still in progress
    assert world.counts() == (1, 0)
    for _ in range(2):
        world.connections.forget(world.by_name["2"])
    assert world.counts() == (0, 0)


def test_a_connection_counts_for_the_key_that_it_used_last() -> None:
    world = _World(9)
    world.arrive("1", key="old")
    world.connections.authenticated(world.by_name["1"], "new")
    assert world.by_name["1"].key_id == "new"
    assert world.counts() == (0, 1)


def test_addresses_of_one_ipv6_network_are_one_peer() -> None:
    """A host usually has the whole network, so it could use an address of its own for each connection."""
    assert peer_of(("10.0.0.1", 5)) == "10.0.0.1"
    assert peer_of(("::ffff:10.0.0.1", 5, 0, 0)) == "10.0.0.1"
    assert peer_of(("2001:db8:1:2::5", 5, 0, 0)) == peer_of(("2001:db8:1:2:ffff::", 6, 0, 0))
    assert peer_of(("2001:db8:1:2::5", 5, 0, 0)) != peer_of(("2001:db8:1:3::5", 5, 0, 0))
    assert peer_of(("fe80::1%eth0", 5, 0, 2)) == peer_of(("fe80::2%eth0", 5, 0, 2))
