"""Every decision of the operator, as pure functions of the observed state."""
