"""The Kafka endpoint of the embedded service: a logstore as a topic, a shard as a partition."""
