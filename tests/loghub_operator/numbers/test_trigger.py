"""What a trigger's metadata may say."""

import pytest

from loghub_operator.numbers.trigger import BadTriggerError, trigger_of


def test_only_the_group_to_wanted_workers_one_for_each() -> None:
    trigger = trigger_of("shop", {"scalerAddress": "x:1", "consumerGroup": "access"})
    assert (trigger.namespace, trigger.group) == ("shop", "access")
    assert (trigger.offer.metric, trigger.target, trigger.activation) == ("loghub_wanted_workers", 1.0, 0.0)


def test_all_given() -> None:
    given = {"consumerGroup": "a", "metric": "lagSeconds", "target": "2.5", "activationLogGroups": "10"}
    trigger = trigger_of("shop", given)
    assert (trigger.offer.metric, trigger.target, trigger.activation) == ("loghub_lag_seconds", 2.5, 10.0)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({}, "need consumerGroup"),
        ({"consumerGroup": "a", "metric": "lag"}, "metric is one of wanted, .* not 'lag'"),
        ({"consumerGroup": "a", "metric": "x" * 500}, "not 'x{79}$"),
        ({"consumerGroup": "a", "metric": "lagSeconds"}, "lagSeconds needs a target"),
        ({"consumerGroup": "a", "target": "many"}, "target is no number: 'many'"),
        ({"consumerGroup": "a", "target": "nan"}, "target is no number"),
        ({"consumerGroup": "a", "target": "0"}, "target must be above 0"),
        ({"consumerGroup": "a", "target": "-1"}, "target must be above 0"),
        ({"consumerGroup": "a", "target": "1e19"}, r"at most 1e\+15"),
        ({"consumerGroup": "a", "activationLogGroups": "-1"}, "must not be below 0"),
        ({"consumerGroup": "a", "activationLogGroups": "inf"}, "activationLogGroups is no number"),
    ],
)
def test_nonsense_is_refused_in_words(metadata: dict[str, str], words: str) -> None:
    with pytest.raises(BadTriggerError, match=words):
        trigger_of("shop", metadata)


def test_a_namespace_in_the_metadata_is_not_heeded() -> None:
    assert trigger_of("shop", {"consumerGroup": "a", "namespace": "other"}).namespace == "shop"
