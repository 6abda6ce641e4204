"""Values that observe, plan and apply exchange."""
