"""Exactly once into files: a commit log, and formats over folders and buckets."""
