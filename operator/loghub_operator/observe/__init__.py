"""Reads the state of one consumer group from the cluster and the log service."""
