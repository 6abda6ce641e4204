"""The command line of the service."""

import resource

import pytest

from loghub.service.__main__ import bounded_by, parse
from loghub.service.settings import Limits

REQUIRED = ("--data", "d", "--listen", "127.0.0.1:0")


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
