"""Clients of the Kubernetes API and of the log service."""
