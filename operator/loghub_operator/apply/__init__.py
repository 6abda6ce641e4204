"""Carries out a plan's actions in the cluster."""
