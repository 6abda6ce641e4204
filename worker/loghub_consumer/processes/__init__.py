"""User code in processes of its own, for programs and for workers with a processor."""
