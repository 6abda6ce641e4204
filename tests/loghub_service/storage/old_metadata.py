"""A metadata file as an earlier release has left it."""

import apsw

# What each version added: tables in an order in which they can be dropped, and columns.
_TABLES = {
    9: (),
    8: (),
    7: ("pulsar_producer", "pulsar_schema", "pulsar_epoch"),
    6: ("subscription_delta", "subscription_cursor", "subscription"),
    5: ("deleted_name",),
    4: ("kafka_producer", "producer_log"),
    3: ("final_offset", "kafka_offset", "kafka_member", "kafka_group"),
    2: ("deletion", "log_end", "single_value"),
}
_COLUMNS = {
    9: (("subscription", "generation"),),
    8: (("subscription", "key"),),
    5: (("logstore", "first_ordinal"),),
    3: (("log_end", "expired_logs"),),
}


def take_back(connection: apsw.Connection, version: int) -> None:
    """Remove what later versions than this one have added."""
    for later in sorted(_TABLES, reverse=True):
        if later > version:
            for table, column in _COLUMNS.get(later, ()):
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            if later == 8:
                connection.execute("UPDATE subscription SET type='Key_Shared' WHERE type='KeyShared'")
            for table in _TABLES[later]:
                connection.execute(f"DROP TABLE {table}")
    connection.pragma("user_version", version)
