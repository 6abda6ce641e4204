"""What a stateful pipeline keeps between micro-batches, and how that fits the positions of its shards."""
