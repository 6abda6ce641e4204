"""Which logs a reset brings again and which it skips."""

import json

import pytest

from loghub.wire.cursor import encode
from loghub_cli.output import utc
from loghub_cli.plugin.reset_preview import CursorsOfShard, Target, ends_of, preview, unknown_shards
from loghub_operator.api.fetch import ResetCheckpoints
from tests.loghub_cli.plugin.objects import AT_UNIX_S, group, shard

# Retention has removed what was before 100; the shard has log groups up to 500.
SAVED, BEGIN, END = 300, 100, 500


def rows_of(target: Target, saved: int | None, to: int | None) -> tuple[object, object, object]:
    """Of one shard: what comes again, what is skipped, and in words."""
    of = {} if saved is None else {"checkpoint": encode(saved)}
    ends = None if to is None else {0: CursorsOfShard(begin=BEGIN, end=END, target=to)}
    seen = preview(group(shards=[shard(0, lagSeconds=60, lagLogs=7, **of)]), target, ends)
    (row,) = seen["shards"] if isinstance(seen["shards"], list) else ()
    assert (seen["logGroupsThatComeAgain"], seen["logGroupsThatAreSkipped"]) == (
        row["comeAgain"],
        row["areSkipped"],
    )
    return row["comeAgain"], row["areSkipped"], row["thatIs"]


@pytest.mark.parametrize(
    ("to", "saved", "target", "again", "skipped"),
    [
        ("Begin", SAVED, BEGIN, 200, 0),
        ("End", SAVED, END, 0, 200),
        ("Timestamp", SAVED, SAVED, 0, 0),
        ("Timestamp", SAVED, 250, 50, 0),
        ("Begin", 20, BEGIN, 0, 0),  # the checkpoint is from before retention: nothing that is there was read
        ("End", 20, END, 0, 400),
    ],
)
def test_the_numbers_are_exact_if_the_log_service_was_asked(
    to: str, saved: int, target: int, again: int, skipped: int
) -> None:
    of = Target(to=to, unix_s=AT_UNIX_S if to == "Timestamp" else None)  # type: ignore[arg-type]
    assert rows_of(of, saved, target) == (again, skipped, None)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target(to="Begin"), "all logs up to the checkpoint come again"),
        (Target(to="End"), "7 logs are skipped"),
        (
            Target(to="Timestamp", unix_s=AT_UNIX_S - 3600),
            f"what was received from {utc(AT_UNIX_S - 3600)} to {utc(AT_UNIX_S - 60)} comes again",
        ),
        (
            Target(to="Timestamp", unix_s=AT_UNIX_S),
            f"what was received from {utc(AT_UNIX_S - 60)} to {utc(AT_UNIX_S)} is skipped",
        ),
    ],
)
def test_without_the_log_service_it_is_said_in_words(target: Target, words: str) -> None:
    assert rows_of(target, SAVED, None) == (None, None, words)


def test_the_checkpoints_of_a_config_map_are_compared_with_those_of_now() -> None:
    """Without the log service too: a cursor counts log groups."""
    kept = Target(to="ConfigMap", config_map="kept", cursors={0: encode(250)})
    assert rows_of(kept, SAVED, None) == (50, 0, None)
    expired = Target(to="ConfigMap", config_map="kept", cursors={0: encode(20)})
    assert rows_of(expired, SAVED, BEGIN) == (200, 0, None)


def test_a_shard_without_a_checkpoint_is_not_guessed() -> None:
    assert rows_of(Target(to="Begin"), None, BEGIN)[:2] == (None, None)


def test_only_the_chosen_shards_move_and_unknown_ones_are_named() -> None:
    document = group(shards=[shard(0), shard(1), shard(2)])
    target = Target(to="End", shards=(1, 9))
    shards = preview(document, target, None)["shards"]
    assert isinstance(shards, list)
    assert [row["shard"] for row in shards] == [1]
    assert unknown_shards(document, target) == [9]


@pytest.mark.parametrize(
    "target",
    [
        Target(to="Begin"),
        Target(to="End", shards=(3,)),
        Target(to="Timestamp", unix_s=AT_UNIX_S),
        Target(to="ConfigMap", config_map="access-checkpoints-1"),
    ],
)
def test_a_request_is_what_the_resource_takes(target: Target) -> None:
    request = {
        key: value for key, value in target.request("by-hand-20261127t080000z").items() if value is not None
    }
    parsed = ResetCheckpoints.model_validate_json(json.dumps(request))
    assert parsed.nonce == "by-hand-20261127t080000z"


@pytest.mark.parametrize("answer", [[{}], [{"shard": 0, "begin": "no", "end": "", "target": ""}], [3]])
def test_an_answer_that_is_none_is_an_error(answer: list[object]) -> None:
    with pytest.raises(ValueError, match=r".*"):
        ends_of(answer)  # type: ignore[arg-type]
