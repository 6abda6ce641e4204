"""Each nonce is executed once, and what was executed is kept in the status."""

from loghub_operator.plan.subject import subject_of
from loghub_operator.resources.worker_config import worker_config
from tests.loghub_operator.plan.checkpoint_reset_world import PLACEMENT, World
from tests.loghub_operator.support.examples import resource


def test_no_nonce_is_executed_twice_although_its_backup_is_gone() -> None:
    """A `git revert` brings back an old manifest: `to: End` would skip every log since. No worker stops."""
    world = World({"to": "End", "nonce": "n0"})
    for number in range(7):
        world.spec["resetCheckpoints"] = {"to": "Begin" if number else "End", "nonce": f"n{number}"}
        assert world.until_over()["phase"] == "Succeeded"
    world.backups.clear()
    world.spec["suspend"] = False
    world.spec["resetCheckpoints"] = {"to": "End", "nonce": "n0"}
    group = world.resource()
    desired = subject_of(group, world.observe(group)).desired
    assert desired is not None
    assert desired.suspension is None
    world.spec["suspend"] = True
    assert world.until_over()["phase"] == "Failed"
    assert world.checkpoints() == world.cursors("begin")


def test_only_a_reset_that_changes_checkpoints_is_one_for_the_state() -> None:
    """Its name in the settings is what makes a stateful worker begin without its state."""
    world = World({"to": "ConfigMap", "configMapName": "typo", "nonce": "a"})
    world.spec["pipeline"] = {"stateful": True}

    def known() -> str:
        return worker_config(world.resource(), PLACEMENT).reset

    assert (known(), world.until_over()["phase"], known()) == ("", "Failed", "")
    world.spec["resetCheckpoints"] = {"to": "End", "nonce": "b"}
    world.round()
    assert known() == "", "ordered, and not begun"
    assert (world.until_over()["phase"], known()) == ("Succeeded", "b")
    world.spec["resetCheckpoints"] = {"to": "ConfigMap", "configMapName": "typo", "nonce": "c"}
    assert (world.until_over()["phase"], known()) == ("Failed", "b")
    del world.spec["resetCheckpoints"]
    assert known() == "b"
    of_an_earlier_release = {**world.status, "resetNonces": None}
    assert worker_config(resource(world.spec, of_an_earlier_release, uid="uid-1"), PLACEMENT).reset == "c"
