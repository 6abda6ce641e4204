"""Combinations of values that together switch every template on and off."""

from tests.charts.chart import Values

MONITORING: Values = {
    "metrics": {
        "serviceMonitor": {"enabled": True},
        "podMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    }
}
SERVICE: Values = {"embeddedService": {"enabled": True}}
TLS: Values = {"embeddedService": {"enabled": True, "tls": {"secretName": "loghub-tls"}}}
KAFKA: Values = {"embeddedService": {"enabled": True, "kafka": {"enabled": True, "plaintext": True}}}
KAFKA_TLS: Values = {
    "embeddedService": {
        "enabled": True,
        "tls": {"secretName": "loghub-tls"},
        "kafka": {"enabled": True, "port": 19092, "advertisedAddress": "logs.example.com:443"},
    }
}
PULSAR: Values = {"embeddedService": {"enabled": True, "pulsar": {"enabled": True, "plaintext": True}}}
PULSAR_TLS: Values = {
    "embeddedService": {
        "enabled": True,
        "tls": {"secretName": "loghub-tls"},
        "kafka": {"enabled": True},
        "pulsar": {"enabled": True, "port": 16650, "advertisedAddress": "logs.example.com:6651"},
    }
}
PLACED: Values = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "system-cluster-critical",
}
# The apiserver validates it: a certificate whose key does not exist.
CA_BUNDLE = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJlekNDQVNHZ0F3SUJBZ0lVSW45T2JKUGZKckNRMDk5Z09aekpCai95"
    "Y1c0d0NnWUlLb1pJemowRUF3SXcKRWpFUU1BNEdBMVVFQXd3SFpYaGhiWEJzWlRBZ0Z3MHlOakV4TWpFeE5UUTVNemhhR0E4"
    "eU1USTJNVEF5T0RFMQpORGt6T0Zvd0VqRVFNQTRHQTFVRUF3d0haWGhoYlhCc1pUQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NN"
    "NDlBd0VICkEwSUFCUDc3aC9wVEI5bFFsbnh6N1Q0QVMwVXVBUG0yNnN4S3ZGVkFKSHI2ZkhVU1VQSlNFc3JTSEhMdVA1RloK"
    "bWpjc1I3Nk1iK1VYa1dISFJvYlNZcFBNTzlLalV6QlJNQjBHQTFVZERnUVdCQlM1T2RCZ1VJZm9IYjVUa25VUAp1ZkFHVXkv"
    "RlN6QWZCZ05WSFNNRUdEQVdnQlM1T2RCZ1VJZm9IYjVUa25VUHVmQUdVeS9GU3pBUEJnTlZIUk1CCkFmOEVCVEFEQVFIL01B"
    "b0dDQ3FHU000OUJBTUNBMGdBTUVVQ0lRQ2hJeStpczk4c1c1RVU2SGFGVWRTRytBS3oKRVNIRG9YZHpIM1VGRm1wREx3SWdE"
    "Tjg4TGZRdFNjYUxFR2hBTWg5blZ4UjB3T0dkVUpCblkzMkpLZkFOU2prPQotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg=="
)
EXTRA: Values = {
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "company-ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/company"}],
}
NAMESPACED: Values = {"watchNamespaces": ["chart-team-a", "chart-team-b"]}

TOGGLES: dict[str, Values] = {
    "defaults": {},
    "service": SERVICE,
    "service with TLS": TLS,
    "service with Kafka": KAFKA,
    "service with Kafka and TLS": KAFKA_TLS,
    "service with Pulsar": PULSAR,
    "service with Kafka, Pulsar and TLS": PULSAR_TLS,
    "service elsewhere": {"embeddedService": {"enabled": True, "namespace": "chart-team-a"}},
    "service placed": {
        "embeddedService": {
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
        "embeddedService": {"enabled": True, "namespace": "chart-team-a"},
    },
    "permissions created by another client": {
        "rbac": {"create": False},
        "serviceAccount": {"create": False, "name": "given"},
    },
    "network policy": {"networkPolicy": {"enabled": True}, **SERVICE},
    "network policy, Kafka": {"networkPolicy": {"enabled": True}, **KAFKA},
    "network policy, Kafka and Pulsar": {"networkPolicy": {"enabled": True}, **PULSAR_TLS},
    "network policy with scrapers": {
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {}}],
            "extraEgress": [{"ports": [{"port": 8443, "protocol": "TCP"}]}],
        }
    },
    "monitoring": MONITORING,
    "monitoring, service": {**MONITORING, **SERVICE},
    "monitoring, namespaced": {**MONITORING, **NAMESPACED},
    "numbers for others": {
        "externalMetrics": {"enabled": True},
        "keda": {"enabled": True},
        "networkPolicy": {"enabled": True},
    },
    "numbers, certificates given": {
        "externalMetrics": {"enabled": True, "certificateSecret": "one", "caBundle": CA_BUNDLE},
        "keda": {"enabled": True, "certificateSecret": "two"},
        "resyncSeconds": 5,
        "metrics": {"maxShardSeries": 0},
    },
    "executors as pods": {"sparkOnKubernetes": {"enabled": True}},
    "executors as pods, namespaced": {"sparkOnKubernetes": {"enabled": True}, **NAMESPACED},
    "client given": {"logServiceClient": "http"},
    "policy": {"policy": {"enabled": True, "namespaces": {"chart-team-a": {"allowPodTemplate": False}}}},
    "policy, namespaced": {"policy": {"enabled": True}, **NAMESPACED},
    "on a platform of its own": {
        "global": {"imageRegistry": "registry.example.com"},
        "ipFamilyPolicy": "SingleStack",
        "logLevel": "warning",
        "podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None},
        "deploymentAnnotations": {"note": "x"},
        "topologySpreadConstraints": [],
        "worker": {"podTemplate": {"spec": {"nodeSelector": {"pool": "logs"}}}},
        **EXTRA,
        "embeddedService": {"enabled": True, "extraArgs": ["--segment-mib=64"], **EXTRA},
    },
    "one operator, no CRD": {"replicas": 1, "crds": {"install": False}},
    "placed and named": {
        **PLACED,
        "fullnameOverride": "a-name-that-is-as-long-as-its-suffixes-leave-room-for",
        "commonLabels": {"team": "logs"},
        "podLabels": {"tier": "control"},
        "podAnnotations": {"note": "x"},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccount": {"annotations": {"note": "y"}},
        "embeddedService": {"enabled": True},
    },
}
