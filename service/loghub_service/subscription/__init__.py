"""The core of subscriptions, a pure state machine: `step` applies one of the `events` to it."""
