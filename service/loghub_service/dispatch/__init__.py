"""Subscriptions while they have consumers, at any endpoint."""
