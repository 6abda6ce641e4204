"""What the user's code must be, and what a user reads otherwise."""

import re
from pathlib import Path

import pytest

from loghub_consumer.errors import FatalError
from loghub_consumer.processes.child import OF_PROGRAM, load_factory
from tests.loghub_worker.processing.processors import Recorder, fanned
from tests.loghub_worker.processing.support import MODULE


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_here:A", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        (f"{MODULE}:Missing", "AttributeError: module .* has no attribute 'Missing'"),
        (f"{MODULE}:NotDerived", "the class is not derived from loghub_consumer.Processor"),
        (f"{MODULE}:Unfinished", "the class does not define process"),
        (f"{MODULE}:WithArguments", "must take no arguments: missing a required argument: 'needed'"),
        (f"{MODULE}:number", "is neither a class nor a function but int; name a class derived from"),
    ],
    ids=lambda value: value.rpartition(":")[2] if ":" in value else "",
)
def test_what_cannot_be_a_factory_is_refused_with_what_to_do(name: str, message: str) -> None:
    with pytest.raises(FatalError) as refused:
        load_factory(name, None)
    assert refused.value.reason == "InvalidPipeline"
    assert refused.value.message.startswith(name)
    assert re.search(message, refused.value.message)


def test_what_fan_out_makes_needs_acknowledgements_by_log_and_no_time_out() -> None:
    assert load_factory(f"{MODULE}:fanned", None, by_log=True) is fanned
    with pytest.raises(FatalError, match=r"set pipeline\.processor\.acknowledge: Log"):
        load_factory(f"{MODULE}:fanned", None)
    with pytest.raises(FatalError, match=r"leave out pipeline\.processor.redelivery\.ackTimeoutSeconds"):
        load_factory(f"{MODULE}:fanned", None, by_log=True, times_out=True)


def test_a_program_reads_of_the_settings_that_it_has() -> None:
    fanned_name = f"{MODULE}:fanned"
    with pytest.raises(FatalError, match=r"set ConsumerSettings\.acknowledge to 'log'"):
        load_factory(fanned_name, None, OF_PROGRAM)
    with pytest.raises(FatalError, match=r"leave out ConsumerSettings\.ack_timeout_s"):
        load_factory(fanned_name, None, OF_PROGRAM, by_log=True, times_out=True)


def test_an_error_in_the_users_file_is_reported_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "broken_counts.py").write_text("import json\nlimit = 1 / 0\n")
    with pytest.raises(FatalError) as refused:
        load_factory("broken_counts:Count", tmp_path)
    place = "ZeroDivisionError: division by zero (broken_counts.py:2, in <module>)"
    assert refused.value.message == f"broken_counts:Count: {place}"


def test_a_class_and_a_function_are_factories() -> None:
    assert load_factory(f"{MODULE}:Recorder", None) is Recorder
    assert callable(load_factory(f"{MODULE}:not_a_processor", None)), "what it returns is seen later"
