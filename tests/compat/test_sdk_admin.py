"""The real Python SDK administers projects, logstores and shards of the service."""

import pytest
from aliyun.log import LogClient, LogException

from tests.compat.sdk import GROUP, LOGSTORE, PROJECT


def _code(raised: pytest.ExceptionInfo[LogException]) -> str:
    return str(raised.value.get_error_code())


@pytest.mark.long
def test_a_project_is_created_updated_and_deleted(client: LogClient) -> None:
    """Create, get, list, update, delete. Verified against SLS: no."""
    client.create_project(PROJECT, "words")
    with pytest.raises(LogException) as raised:
        client.create_project(PROJECT, "again")
    assert _code(raised) == "ProjectAlreadyExist"
    project = client.get_project(PROJECT)
    assert (project.get_projectname(), project.get_description()) == (PROJECT, "words")
    assert [p["projectName"] for p in client.list_project().get_projects()] == [PROJECT]
    client.delete_project(PROJECT)
    with pytest.raises(LogException) as raised:
        client.get_project(PROJECT)
    assert (_code(raised), raised.value.get_resp_status()) == ("ProjectNotExist", 404)


@pytest.mark.long
def test_a_logstore_is_created_updated_and_deleted(client: LogClient) -> None:
    """Create, get, list, update, delete. Verified against SLS: no."""
    client.create_project(PROJECT, "")
    client.create_logstore(PROJECT, LOGSTORE, ttl=3, shard_count=2)
    with pytest.raises(LogException) as raised:
        client.create_logstore(PROJECT, LOGSTORE, shard_count=2)
    assert _code(raised) == "LogStoreAlreadyExist"
    client.update_logstore(PROJECT, LOGSTORE, ttl=5, enable_tracking=True)
    found = client.get_logstore(PROJECT, LOGSTORE)
    assert (found.logstore_name, found.get_ttl(), found.get_shard_count()) == (LOGSTORE, 5, 2)
    assert found.get_enable_tracking() is True
    assert client.list_logstore(PROJECT).get_logstores() == [LOGSTORE]
    client.delete_logstore(PROJECT, LOGSTORE)
    with pytest.raises(LogException) as raised:
        client.get_logstore(PROJECT, LOGSTORE)
    assert (_code(raised), raised.value.get_resp_status()) == ("LogStoreNotExist", 404)


@pytest.mark.long
def test_shards_are_split_merged_and_deleted(logstore: LogClient) -> None:
    """The old shard comes first and is read-only; only a read-only one can go. Verified against SLS: no."""
    split = logstore.split_shard(PROJECT, LOGSTORE, 0, "2" + "0" * 31).get_shards_info()
    assert [(s["shardID"], s["status"]) for s in split] == [
        (0, "readonly"),
        (4, "readwrite"),
        (5, "readwrite"),
    ]
    assert [s["inclusiveBeginKey"] for s in split] == ["0" * 32, "0" * 32, "2" + "0" * 31]
    merged = logstore.merge_shard(PROJECT, LOGSTORE, 1).get_shards_info()
    assert [(s["shardID"], s["status"]) for s in merged] == [
        (1, "readonly"),
        (2, "readonly"),
        (6, "readwrite"),
    ]
    with pytest.raises(LogException) as raised:
        logstore.delete_shard(PROJECT, LOGSTORE, 4)
    assert _code(raised) == "ParameterInvalid"
    logstore.delete_shard(PROJECT, LOGSTORE, 0)
    left = [s["shardID"] for s in logstore.list_shards(PROJECT, LOGSTORE).get_shards_info()]
    assert left == [1, 2, 3, 4, 5, 6]


@pytest.mark.long
def test_a_consumer_group_is_created_updated_and_deleted(logstore: LogClient) -> None:
    """Create, list, update, delete, and the code that every client goes on with. Verified against SLS: no."""
    logstore.create_consumer_group(PROJECT, LOGSTORE, GROUP, 30, True)
    with pytest.raises(LogException) as raised:
        logstore.create_consumer_group(PROJECT, LOGSTORE, GROUP, 30, True)
    assert (_code(raised), raised.value.get_resp_status()) == ("ConsumerGroupAlreadyExist", 400)
    logstore.update_consumer_group(PROJECT, LOGSTORE, GROUP, 20, False)
    groups = logstore.list_consumer_group(PROJECT, LOGSTORE).get_consumer_groups()
    assert [(g.get_consumer_group_name(), g.get_timeout(), g.is_in_order()) for g in groups] == [
        (GROUP, 20, False)
    ]
    logstore.delete_consumer_group(PROJECT, LOGSTORE, GROUP)
    assert logstore.list_consumer_group(PROJECT, LOGSTORE).get_consumer_groups() == []


@pytest.mark.long
def test_queries_are_refused(logstore: LogClient) -> None:
    """GetLogs gets a clear error. The real service has queries, so: verified against SLS: no."""
    with pytest.raises(LogException) as raised:
        logstore.get_log(PROJECT, LOGSTORE, 0, 1, query="*")
    assert raised.value.get_resp_status() == 400
    assert "queries" in raised.value.get_error_message()


@pytest.mark.long
def test_a_logstore_has_no_index(logstore: LogClient) -> None:
    """The SDK's ``copy_logstore`` passes over the index at this code. It has made the logstore when it fails
    at the settings of Logtail, which the service does not have. Verified against SLS: no."""
    with pytest.raises(LogException) as raised:
        logstore.get_index_config(PROJECT, LOGSTORE)
    assert (_code(raised), raised.value.get_resp_status()) == ("IndexConfigNotExist", 404)
    with pytest.raises(LogException) as raised:
        logstore.get_index_config(PROJECT, "absent")
    assert (_code(raised), raised.value.get_resp_status()) == ("LogStoreNotExist", 404)
    with pytest.raises(LogException, match="GET /configs is not an API of this service"):
        logstore.copy_logstore(PROJECT, LOGSTORE, "copy")
    assert logstore.get_logstore(PROJECT, "copy").get_shard_count() == 4
