"""`make demo`: runs a complete setup on this machine, shows it live, and verifies its output."""
