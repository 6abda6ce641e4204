"""Membership in the consumer group: heartbeats, held shards and checkpoints."""
