"""The external metrics API of Kubernetes."""
