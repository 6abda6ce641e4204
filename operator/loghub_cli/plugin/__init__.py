"""``kubectl loghub``: LogHubConsumerGroups of a cluster, by the user's own `kubectl`.

`kubectl` runs as a child, so that the user's contexts, namespaces, logins and proxies hold, and no client
library is needed. What is shown is worked out by pure functions from the objects that it prints; `kubectl.py`
is the only module here that starts a process.
"""
