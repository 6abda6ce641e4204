"""What `loghub up` shows in a terminal."""
