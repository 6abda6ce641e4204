"""The dispatcher of subscriptions, a pure state machine. `step` is its entry, `events` what happens to it."""
