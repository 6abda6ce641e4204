"""Starts, watches and replaces the worker processes of `loghub up`."""
