"""Combinations of values that between them switch every template on and off.

What for: what holds for one holds for all. What it must not know: what is asserted. Read next:
`test_objects`.
"""

from tests.charts.chart import Values

MONITORING: Values = {
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    }
}
SERVICE: Values = {"service": {"enabled": True}}
PLACED: Values = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
}
NAMESPACED: Values = {"watchNamespaces": ["chart-team-a", "chart-team-b"]}

TOGGLES: dict[str, Values] = {
    "defaults": {},
    "service": SERVICE,
    "service elsewhere": {"service": {"enabled": True, "namespace": "chart-team-a"}},
    "service placed": {
        "service": {
            "enabled": True,
            **{key: PLACED[key] for key in ("nodeSelector", "tolerations", "affinity")},
            "storage": {"className": "fast", "size": "1Ti"},
        }
    },
    "namespaced": NAMESPACED,
    "namespaced, some secrets": {**NAMESPACED, "rbac": {"secretNames": ["one", "two"]}},
    "cluster-wide, some secrets": {"rbac": {"secretNames": ["one"], "userRoles": False}},
    "service in a watched namespace": {
        **NAMESPACED,
        "service": {"enabled": True, "namespace": "chart-team-a"},
    },
    "rights made by somebody else": {
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "given"},
    },
    "network policy": {"networkPolicy": {"enabled": True}, **SERVICE},
    "network policy with scrapers": {
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {}}],
            "extraEgress": [{"ports": [{"port": 8443, "protocol": "TCP"}]}],
        }
    },
    "monitoring": MONITORING,
    "monitoring, namespaced": {**MONITORING, **NAMESPACED},
    "one operator, no CRD": {"replicas": 1, "crds": {"install": False}},
    "placed and named": {
        **PLACED,
        "fullnameOverride": "a-name-that-is-as-long-as-its-suffixes-leave-room-for",
        "commonLabels": {"team": "logs"},
        "podLabels": {"tier": "control"},
        "podAnnotations": {"note": "x"},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccount": {"annotations": {"note": "y"}},
        "service": {"enabled": True},
    },
}
