"""The command line of the service."""

import resource
from dataclasses import fields

import pytest

from loghub_service.__main__ import bounded_by, parse
from loghub_service.kafka.coordinator.group import KafkaGroupLimits
from loghub_service.limit_flags import LimitFlag, flags_of
from loghub_service.settings import KafkaLimits, Limits, PulsarLimits, PulsarSettings, ServiceSettings

REQUIRED = ("--data", "d", "--listen", "127.0.0.1:0")
KAFKA = ("--kafka", "127.0.0.1:0")
PULSAR = ("--pulsar", "127.0.0.1:0")


def test_the_number_of_connections_can_be_chosen() -> None:
    assert parse(REQUIRED).limits == Limits()
    assert parse((*REQUIRED, "--max-connections", "77")).limits.connections == 77


@pytest.mark.parametrize("number", ["0", "9", "-5", "many", "10000001"])
def test_an_odd_number_of_connections_is_a_usage_error(number: str) -> None:
    with pytest.raises(SystemExit):
        parse((*REQUIRED, "--max-connections", number))


def test_connections_leave_half_of_the_open_files_to_segments() -> None:
    settings = parse((*REQUIRED, "--max-connections", "100"))
    assert bounded_by(60, settings).limits.connections == 30
    assert bounded_by(1000, settings) == settings
    assert bounded_by(resource.RLIM_INFINITY, settings) == settings
    both = bounded_by(60, parse((*REQUIRED, *KAFKA)))
    assert (both.limits.connections, both.kafka_limits.connections) == (15, 15)
    three = bounded_by(60, parse((*REQUIRED, *KAFKA, *PULSAR)))
    connections = {limits.connections for limits in (three.limits, three.kafka_limits, three.pulsar_limits)}
    assert connections == {10}


def values_of(settings: ServiceSettings) -> dict[tuple[type, str], object]:
    """Every limit by its owner and field."""
    owners = (settings.limits, settings.kafka_limits, settings.kafka_groups, settings.pulsar_limits)
    return {(type(one), field.name): getattr(one, field.name) for one in owners for field in fields(one)}


FLAGS = flags_of(Limits) + flags_of(KafkaLimits) + flags_of(KafkaGroupLimits) + flags_of(PulsarLimits)


@pytest.mark.parametrize("flag", FLAGS, ids=[flag.name for flag in FLAGS])
def test_each_limit_has_a_flag_with_bounds(flag: LimitFlag, capsys: pytest.CaptureFixture[str]) -> None:
    assert flag.minimum <= flag.default <= flag.maximum
    other = flag.default - 1 if flag.default > flag.minimum else flag.default + 1
    limits = values_of(parse((*REQUIRED, flag.name, str(other))))
    changed = dict(limits.items() - values_of(parse(REQUIRED)).items())
    assert changed == {(flag.owner, name): other * flag.unit for name in flag.fields}
    for odd in (str(flag.minimum - 1), str(flag.maximum + 1), "many", "", "9" * 5000, "²"):
        with pytest.raises(SystemExit):
            parse((*REQUIRED, f"{flag.name}={odd}"))
        assert f"must be a number from {flag.minimum} to {flag.maximum}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-put-memory-mib=19",), "at least twice --max-log-group-mib"),
        (("--max-answer-memory-mib=19",), "--max-pull-mib and --max-log-group-mib together"),
        (("--max-shards=63",), "--max-shards-at-creation must not exceed --max-shards"),
        ((*KAFKA, "--max-kafka-memory-mib=10"), "must be more than --max-log-group-mib"),
        (
            (*KAFKA, "--max-kafka-answer-memory-mib=25"),
            "--max-kafka-fetch-mib and --max-log-group-mib together",
        ),
        ((*PULSAR, "--max-pulsar-message-mib=10"), "must be less than --max-log-group-mib"),
        ((*PULSAR, "--max-pulsar-memory-mib=5"), "must be more than --max-pulsar-message-mib"),
        ((*PULSAR, "--max-pulsar-answer-memory-mib=5"), "must be more than --max-pulsar-message-mib"),
        (("--pulsar-advertise=a:1",), "the options of the Pulsar endpoint need --pulsar"),
        (("--pulsar-auto-create",), "the options of the Pulsar endpoint need --pulsar"),
        (("--pulsar", "0.0.0.0:6650"), "or --pulsar-plaintext where the network is trusted"),
        (("--min-kafka-session-s=9", "--max-kafka-session-s=8"), "must not exceed --max-kafka-session-s"),
    ],
)
def test_limits_that_contradict_each_other_are_a_usage_error(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse((*REQUIRED, *arguments))
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("one", ["--tls-cert", "--tls-key"])
def test_certificate_and_key_belong_together(one: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse((*REQUIRED, one, "file"))
    assert "belong together" in capsys.readouterr().err
    settings = parse((*REQUIRED, "--tls-cert", "c", "--tls-key", "k"))
    assert (settings.tls_certificate, settings.tls_key) == ("c", "k")


def test_the_admin_port_is_off_unless_it_is_chosen() -> None:
    assert parse(REQUIRED).admin is None
    assert parse((*REQUIRED, "--admin-listen", ":9404")).admin == ("", 9404)


def test_the_pulsar_endpoint_has_its_address_and_the_address_of_its_answers() -> None:
    assert parse(REQUIRED).pulsar is None
    settings = parse((*REQUIRED, *PULSAR, "--pulsar-advertise", "broker:6650", "--pulsar-auto-create"))
    assert settings.pulsar == PulsarSettings(
        host="127.0.0.1", port=0, advertised=("broker", 6650), auto_create=True
    )
