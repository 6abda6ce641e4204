"""Values of ``spec.pipeline.onFailure`` for `tests.loghub_operator.api.test_validation`."""

from tests.loghub_operator.support.examples import Document

# Name -> spec, place and message of the rule that it breaks.
RULES: dict[str, tuple[Document, str, str]] = {
    "dead-letter-without-its-policy": (
        {"pipeline": {"onFailure": {"policy": "Skip", "deadLetter": {"logstore": {"name": "rejected"}}}}},
        "spec.pipeline.onFailure",
        "deadLetter is required with policy: DeadLetter and not allowed otherwise",
    ),
    "policy-without-its-dead-letter": (
        {"pipeline": {"onFailure": {"policy": "DeadLetter"}}},
        "spec.pipeline.onFailure",
        "deadLetter is required with policy: DeadLetter and not allowed otherwise",
    ),
    "two-dead-letters": (
        {
            "pipeline": {
                "onFailure": {
                    "policy": "DeadLetter",
                    "deadLetter": {
                        "logstore": {"name": "rejected"},
                        "folder": {"path": "a", "volumeClaim": "rejected"},
                    },
                }
            }
        },
        "spec.pipeline.onFailure.deadLetter",
        "exactly one dead letter must be set: logstore or folder",
    ),
    "dead-letter-is-the-source": (
        {"pipeline": {"onFailure": {"policy": "DeadLetter", "deadLetter": {"logstore": {"name": "access"}}}}},
        "spec.pipeline.onFailure",
        "the dead letter must not be the logstore that is consumed",
    ),
}
ACCEPTED: dict[str, Document] = {
    "dead-letter-of-another-project": {
        "pipeline": {
            "onFailure": {
                "policy": "DeadLetter",
                "deadLetter": {"logstore": {"project": "other", "name": "access"}},
            }
        }
    },
    "dead-letter-folder": {
        "pipeline": {
            "onFailure": {
                "policy": "DeadLetter",
                "deadLetter": {"folder": {"path": "a/b", "volumeClaim": "rejected"}},
            }
        }
    },
}
