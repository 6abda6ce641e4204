"""`make demo`: the whole thing on this machine, shown and then counted."""
