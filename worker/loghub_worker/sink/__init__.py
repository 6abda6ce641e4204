"""Sinks, and the commit log that makes file sinks exactly-once."""
