"""All tables of the metadata (SQLite), version by version.

Each version adds to the versions before it, and a file of an older release gets what later versions add.
`rows`, `kafka_rows`, `subscription_rows` and `pulsar_rows` have the statements that save and read rows.
"""

# Projects, logstores, shards, and consumer groups.
_VERSION_1 = """
CREATE TABLE project (
  name TEXT PRIMARY KEY, description TEXT NOT NULL, created_s INTEGER NOT NULL, modified_s INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE logstore (
  id INTEGER PRIMARY KEY AUTOINCREMENT, project TEXT NOT NULL REFERENCES project(name), name TEXT NOT NULL,
  ttl_days INTEGER NOT NULL, next_shard INTEGER NOT NULL, options TEXT NOT NULL,
  created_s INTEGER NOT NULL, modified_s INTEGER NOT NULL,
  UNIQUE (project, name)
);
CREATE TABLE shard (
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, shard INTEGER NOT NULL,
  begin_key TEXT NOT NULL, end_key TEXT NOT NULL, read_only INTEGER NOT NULL, parents TEXT NOT NULL,
  born_us INTEGER NOT NULL, first_cursor INTEGER NOT NULL, PRIMARY KEY (logstore, shard)
) WITHOUT ROWID;
CREATE TABLE consumer_group (
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, name TEXT NOT NULL,
  timeout_s REAL NOT NULL, ordered INTEGER NOT NULL, PRIMARY KEY (logstore, name)
) WITHOUT ROWID;
CREATE TABLE group_shard (
  logstore INTEGER NOT NULL, name TEXT NOT NULL, shard INTEGER NOT NULL, parents TEXT NOT NULL,
  begin_cursor INTEGER NOT NULL, end_cursor INTEGER, state TEXT NOT NULL, holder TEXT, next_holder TEXT,
  last_holder TEXT,
  checkpoint INTEGER, checkpoint_consumer TEXT, checkpoint_us INTEGER,
  PRIMARY KEY (logstore, name, shard),
  FOREIGN KEY (logstore, name) REFERENCES consumer_group(logstore, name) ON DELETE CASCADE
) WITHOUT ROWID;
"""
# Deletions whose files are not removed yet, extents of logs, and single values.
_VERSION_2 = """
CREATE TABLE deletion (
  logstore INTEGER NOT NULL, shard INTEGER NOT NULL, PRIMARY KEY (logstore, shard)
) WITHOUT ROWID;
CREATE TABLE log_end (
  logstore INTEGER NOT NULL, shard INTEGER NOT NULL, oldest_cursor INTEGER NOT NULL,
  end_cursor INTEGER NOT NULL, PRIMARY KEY (logstore, shard),
  FOREIGN KEY (logstore, shard) REFERENCES shard(logstore, shard) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE single_value (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
"""
# Kafka groups, and for the offsets of Kafka clients the ends of deleted shards, and where a log begins.
_VERSION_3 = """
CREATE TABLE kafka_group (
  project TEXT NOT NULL REFERENCES project(name) ON DELETE CASCADE, name TEXT NOT NULL,
  state TEXT NOT NULL, generation INTEGER NOT NULL, protocol_type TEXT, protocol TEXT, leader TEXT,
  empty_since_ms INTEGER, PRIMARY KEY (project, name)
) WITHOUT ROWID;
CREATE TABLE kafka_member (
  project TEXT NOT NULL, name TEXT NOT NULL, member_id TEXT NOT NULL, instance_id TEXT,
  client_id TEXT NOT NULL, client_host TEXT NOT NULL, session_timeout_ms INTEGER NOT NULL,
  rebalance_timeout_ms INTEGER NOT NULL, protocols BLOB NOT NULL, assignment BLOB NOT NULL,
  PRIMARY KEY (project, name, member_id),
  FOREIGN KEY (project, name) REFERENCES kafka_group(project, name) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE kafka_offset (
  project TEXT NOT NULL, name TEXT NOT NULL,
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, shard INTEGER NOT NULL,
  committed INTEGER NOT NULL, metadata TEXT NOT NULL, commit_ms INTEGER NOT NULL,
  PRIMARY KEY (project, name, logstore, shard),
  FOREIGN KEY (project, name) REFERENCES kafka_group(project, name) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX kafka_offset_of_logstore ON kafka_offset (logstore);
CREATE TABLE final_offset (
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, shard INTEGER NOT NULL,
  final_offset INTEGER NOT NULL, PRIMARY KEY (logstore, shard)
) WITHOUT ROWID;
ALTER TABLE log_end ADD COLUMN expired_logs INTEGER;
"""
# Idempotent producers of Kafka. The order of their rows is the order in which they were saved.
_VERSION_4 = """
CREATE TABLE kafka_producer (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, partition INTEGER NOT NULL,
  producer INTEGER NOT NULL, batches BLOB NOT NULL, UNIQUE (logstore, partition, producer)
);
CREATE TABLE producer_log (
  logstore INTEGER NOT NULL, shard INTEGER NOT NULL, cursor INTEGER NOT NULL, PRIMARY KEY (logstore, shard),
  FOREIGN KEY (logstore, shard) REFERENCES shard(logstore, shard) ON DELETE CASCADE
) WITHOUT ROWID;
"""
# So that offsets are not given again when a logstore is created again.
_VERSION_5 = """
ALTER TABLE logstore ADD COLUMN first_ordinal INTEGER NOT NULL DEFAULT 0;
CREATE TABLE deleted_name (
  number INTEGER PRIMARY KEY, project TEXT NOT NULL, name TEXT NOT NULL, next_ordinal INTEGER NOT NULL,
  UNIQUE (project, name)
);
"""
# Subscriptions. The order of the rows of `subscription_delta` is the order in which they were saved.
_VERSION_6 = """
CREATE TABLE subscription (
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, name TEXT NOT NULL,
  type TEXT NOT NULL, in_order INTEGER NOT NULL, PRIMARY KEY (logstore, name)
) WITHOUT ROWID;
CREATE TABLE subscription_cursor (
  logstore INTEGER NOT NULL, name TEXT NOT NULL, shard INTEGER NOT NULL, packed BLOB NOT NULL,
  PRIMARY KEY (logstore, name, shard),
  FOREIGN KEY (logstore, name) REFERENCES subscription(logstore, name) ON DELETE CASCADE,
  FOREIGN KEY (logstore, shard) REFERENCES shard(logstore, shard) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX subscription_cursor_of_shard ON subscription_cursor (logstore, shard);
CREATE TABLE subscription_delta (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  logstore INTEGER NOT NULL, name TEXT NOT NULL, shard INTEGER NOT NULL, packed BLOB NOT NULL,
  FOREIGN KEY (logstore, name, shard) REFERENCES subscription_cursor(logstore, name, shard)
    ON DELETE CASCADE
);
CREATE INDEX subscription_delta_of_cursor ON subscription_delta (logstore, name, shard);
"""
# Pulsar's producers with a name, schemas and epochs. The order of the producers' rows is the order in which
# they were saved.
_VERSION_7 = """
CREATE TABLE pulsar_producer (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, partition INTEGER NOT NULL,
  producer TEXT NOT NULL, sequence INTEGER NOT NULL, chunk INTEGER NOT NULL,
  UNIQUE (logstore, partition, producer)
);
CREATE TABLE pulsar_schema (
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, version INTEGER NOT NULL,
  schema BLOB NOT NULL, PRIMARY KEY (logstore, version)
) WITHOUT ROWID;
CREATE TABLE pulsar_epoch (
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, partition INTEGER NOT NULL,
  epoch INTEGER NOT NULL, PRIMARY KEY (logstore, partition)
) WITHOUT ROWID;
"""
# The fields of a log that are its key in a subscription, as a JSON array, and one spelling of its type
# everywhere.
_VERSION_8 = """
ALTER TABLE subscription ADD COLUMN key TEXT NOT NULL DEFAULT '[]';
UPDATE subscription SET type='KeyShared' WHERE type='Key_Shared';
"""
# So that an acknowledgment from before a seek does not count after it.
_VERSION_9 = """
ALTER TABLE subscription ADD COLUMN generation TEXT NOT NULL DEFAULT '';
"""

SCHEMAS = (
    _VERSION_1,
    _VERSION_2,
    _VERSION_3,
    _VERSION_4,
    _VERSION_5,
    _VERSION_6,
    _VERSION_7,
    _VERSION_8,
    _VERSION_9,
)
SCHEMA_VERSION = len(SCHEMAS)
