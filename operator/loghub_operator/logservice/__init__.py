"""Reads and changes the consumer group at the log service."""
