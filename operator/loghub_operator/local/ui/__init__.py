"""Terminal output of `loghub up`."""
