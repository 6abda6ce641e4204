"""Serving certificates: given, or generated at start."""
