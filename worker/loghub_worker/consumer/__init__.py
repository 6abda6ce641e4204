"""The runtime of `loghub_worker.api`: shards in threads, without Spark."""
