"""Builds the status and decides when to write it."""
