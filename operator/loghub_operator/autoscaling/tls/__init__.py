"""Serving certificates, mounted or generated at startup."""
