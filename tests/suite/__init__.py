"""The suite itself: its parts with their budgets, what they cost, and the slices of the long tests."""
