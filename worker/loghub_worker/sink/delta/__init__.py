"""Exactly once into a Delta table."""
