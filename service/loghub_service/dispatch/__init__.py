"""Subscriptions while they have consumers, of whatever endpoint."""
