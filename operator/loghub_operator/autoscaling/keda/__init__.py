"""KEDA's external scaler."""
