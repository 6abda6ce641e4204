"""No more tests with Spark at a time than there are slots."""

from pathlib import Path

from tests.spark_slots import try_take


def test_a_slot_is_free_again_once_its_test_has_ended(tmp_path: Path) -> None:
    first, second = try_take(tmp_path, slots=2), try_take(tmp_path, slots=2)
    assert first is not None
    assert second is not None
    assert try_take(tmp_path, slots=2) is None
    first.close()
    third = try_take(tmp_path, slots=2)
    assert third is not None
    assert try_take(tmp_path, slots=2) is None
    third.close()
    second.close()
