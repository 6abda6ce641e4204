"""To which endpoints of an object the operator sends nothing, and in which words."""

import pytest

from loghub_operator.logservice.access import insecure_endpoint

NODE = "is an address of the node"
PUBLIC = "is not encrypted"


@pytest.mark.parametrize(
    ("endpoint", "allowed", "why"),
    [
        ("http://169.254.169.254", (), NODE),
        ("https://169.254.169.254", (), NODE),
        ("169.254.1.1:8080", (), NODE),
        ("http://[fe80::1]:80", (), NODE),
        ("http://[fe80::1%25eth0]", (), NODE),
        ("http://[::ffff:169.254.169.254]", (), NODE),
        ("http://100.100.100.200", (), NODE),
        ("http://[fd00:ec2::254]", (), NODE),
        ("http://169.254.169.254", ("*",), NODE),
        ("http://169.254.169.254", ("169.254.169.254",), ""),
        ("http://100.100.100.201", (), ""),
        ("http://10.0.0.1", (), ""),
        ("http://[fd00::1]", (), ""),
        ("http://logs.example.com", (), PUBLIC),
        ("http://logs.example.com", ("*",), ""),
        ("https://logs.example.com", (), ""),
        ("http://[fe80", (), PUBLIC),
    ],
)
def test_nothing_is_sent_to_a_node_nor_in_clear_to_the_public(
    endpoint: str, allowed: tuple[str, ...], why: str
) -> None:
    refused = insecure_endpoint(endpoint, allowed, remedy="allow it")
    assert (refused is None) == (not why)
    if refused is not None:
        assert refused.message.startswith(f"{endpoint} {why}")
        assert refused.message.endswith(", or allow it")
