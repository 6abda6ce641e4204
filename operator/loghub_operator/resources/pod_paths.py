"""Paths at which volumes are mounted in worker pods."""

SINK_ROOT = "/sink"
CODE_ROOT = "/code"
DEAD_LETTER_ROOT = "/dead-letter"
LOG_ROOT = "/log"
