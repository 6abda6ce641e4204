"""What the Python SDK can do with a key that has few rights: its consumer library needs only that to read."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aliyun.log import LogClient, LogException

from loghub.client.port import Credentials
from tests.compat import sdk
from tests.compat.sdk import GROUP, LOGSTORE, PROJECT, Sink, client_of, consuming, put
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = pytest.mark.long

READER = Credentials(access_key_id="reader", access_key_secret="readerSecret")
WRITER = Credentials(access_key_id="writer", access_key_secret="writerSecret")


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceProcess]:
    (tmp_path / "credentials").mkdir()
    entries = [
        {
            "accessKeyId": key.access_key_id,
            "accessKeySecret": key.access_key_secret,
            "projects": [PROJECT],
            "rights": [right],
        }
        for key, right in ((READER, "read"), (WRITER, "write"))
    ]
    (tmp_path / "credentials" / "accessKeys.json").write_text(json.dumps(entries))
    with running_service(tmp_path, extra=("--base-name", "sls.invalid")) as running:
        sdk.through_proxy(monkeypatch, running)
        yield running


def test_a_consumer_and_a_producer_need_no_right_to_delete(
    logstore: LogClient, service: ServiceProcess
) -> None:
    """The library creates the group itself. Verified against SLS: no, where RAM grants single actions."""
    reader, writer = client_of(service, READER), client_of(service, WRITER)
    sink = Sink()
    with consuming(service, "c-0", sink, key=READER):
        put(writer, ["one", "two"])
        wait_until(lambda: sorted(sink.lines()) == ["one", "two"], "the lines")
    assert [group["name"] for group in logstore.list_consumer_group(PROJECT, LOGSTORE).get_body()] == [GROUP]
    for refused in (
        lambda: reader.delete_logstore(PROJECT, LOGSTORE),
        lambda: reader.delete_consumer_group(PROJECT, LOGSTORE, GROUP),
        lambda: put(reader, ["three"]),
        lambda: writer.delete_logstore(PROJECT, LOGSTORE),
        lambda: writer.list_shards(PROJECT, LOGSTORE),
        lambda: reader.list_logstore("other"),
    ):
        with pytest.raises(LogException) as raised:
            refused()
        assert raised.value.get_error_code() == "Unauthorized"
    logstore.delete_logstore(PROJECT, LOGSTORE)
