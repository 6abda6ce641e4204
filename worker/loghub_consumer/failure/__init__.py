"""What a worker does with log groups that it cannot deliver."""
