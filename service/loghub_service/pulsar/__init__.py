"""The Pulsar endpoint of the embedded service: a logstore as a partitioned topic, a shard as a partition."""
