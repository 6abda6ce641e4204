"""Membership in the consumer group: heartbeats, held shards, checkpoints."""
