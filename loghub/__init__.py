"""LogHub consumer groups: the shared domain, wire, client and embedded service."""
