"""The running operator: Kopf handlers, the reconcile loop, health checks and metrics endpoints."""
