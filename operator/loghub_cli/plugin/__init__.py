"""``kubectl loghub``: LogHubConsumerGroups of a cluster, by the user's own `kubectl`.

`kubectl` runs as a child, so that context, namespace, logins and proxies are those of the user, and no client
library is needed. What is shown is worked out by pure functions from the objects that it prints; `kubectl.py`
is the only module here that starts a process.
"""
