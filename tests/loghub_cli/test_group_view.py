"""What `loghub status NAME` and `kubectl loghub` say of an object: what is wrong, why, and who decides."""

import pytest

from loghub_cli.group_view import details, findings, meaning, overview, scaling_sentence
from loghub_operator.api import parse_stored
from loghub_operator.tools import reasons_page
from tests.loghub_cli.plugin.objects import AT_UNIX_S, CAST, WELL, condition, group
from tests.support import ROOT

FAILING = condition("ShardFailing", "True", "RetryingLogGroup", CAST)
DEGRADED = condition("Degraded", "True", "ShardFailing", CAST)


def test_the_objects_of_these_tests_are_of_the_model() -> None:
    parsed = parse_stored(group(FAILING, DEGRADED))
    assert len(parsed.status.conditions) == len(WELL)


def test_the_committed_texts_match_the_code() -> None:
    committed = (ROOT / "operator" / "loghub_cli" / "reasons.json").read_text(encoding="utf-8")
    assert committed == reasons_page.texts(), "run: make crds"


def test_a_group_that_is_well_has_no_findings() -> None:
    assert findings(group()) == []
    assert findings({"metadata": {"name": "new"}, "spec": {}}) == [], "no operator has seen it"


def test_a_cause_is_named_once_and_what_repeats_it_is_left_out() -> None:
    (finding,) = findings(group(FAILING, DEGRADED, condition("Ready", "True", "Running")))
    assert (finding.condition, finding.reason, finding.note) == ("ShardFailing", "RetryingLogGroup", False)
    assert "correct the pipeline" in finding.meaning
    assert finding.summary == f"ShardFailing RetryingLogGroup: {CAST}"


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        # A reference of a text to another condition, and the same reason.
        (
            [condition("GroupSynced", "False", "EndpointUnreachable", "no route"),
             condition("LagAvailable", "False", "LogServiceUnavailable"),
             condition("Degraded", "True", "LogServiceUnavailable")],
            [("GroupSynced", False)],
        ),
        # The wrong comes before what is on purpose.
        (
            [condition("Suspended", "True", "AdoptionRefused", "is not adopted"),
             condition("GroupSynced", "False", "AdoptionRefused", "a group of others"),
             condition("Degraded", "True", "AdoptionRefused")],
            [("GroupSynced", False)],
        ),
        ([condition("Suspended", "True", "Suspended")], [("Suspended", True)]),
        (
            [condition("Ready", "False", "RollingUpdate", "1 of 2"),
             condition("ScalingLimited", "True", "TooFewShards")],
            [("ScalingLimited", True), ("Ready", True)],
        ),
        ([condition("WorkersAvailable", "Unknown", "Forbidden")], [("WorkersAvailable", False)]),
    ],
)  # fmt: skip
def test_findings_are_causes_first(conditions: list[dict[str, str]], found: list[tuple[str, bool]]) -> None:
    assert [(one.condition, one.note) for one in findings(group(*conditions))] == found


def test_a_reason_has_the_meaning_of_its_condition_or_of_the_one_that_it_is_of() -> None:
    assert meaning("Suspended", "Suspended") == "spec.suspend is true."
    assert "Spark" in meaning("Ready", "SparkNotStarted")
    assert meaning("WorkersAvailable", "ImagePullBackOff") == "", "Kubernetes' own"


def test_the_scaling_is_a_sentence() -> None:
    scaling = {
        "mode": "Auto",
        "desiredReplicas": 3,
        "recommendedReplicas": 4,
        "blocked": True,
        "formula": "4 = ceil((812/s + 2310/300 s) / 260/s)",
        "limitedBy": "Shards",
        "reason": "RebalanceInProgress",
    }
    active = condition("ScalingActive", "True", "RebalanceInProgress", "in transfer: 7")
    said = scaling_sentence(group(active, scaling=scaling))
    assert said == (
        "Auto runs 3; wants 4; 4 = ceil((812/s + 2310/300 s) / 260/s); limited by Shards;"
        " held: RebalanceInProgress: in transfer: 7"
    )
    assert scaling_sentence(group()) == "", "before the first decision"


def test_the_details_begin_with_what_is_wrong_and_control_no_terminal() -> None:
    evil = condition("ShardFailing", "True", "RetryingLogGroup", "a\x1b[2Jb")
    text = details(group(evil), (), now_unix_s=AT_UNIX_S, width=80)
    assert text.startswith("wrong: ShardFailing RetryingLogGroup: a\\x1b[2Jb\n")
    assert "\x1b" not in text
    assert "CONDITION" in text
    assert "CONDITION" not in details(group(), (), now_unix_s=AT_UNIX_S, width=80, conditions=False)


def test_an_object_that_nobody_has_seen_has_unknown_numbers() -> None:
    row = overview({"metadata": {"name": "new"}, "spec": {}})
    assert row == {"name": "new", **dict.fromkeys(("phase", "workers", "shards", "lagLogs", "lagSeconds"))}
