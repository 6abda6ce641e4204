"""The rules of ``spec`` for pipelines that must not follow the load in every way."""

from loghub_operator.api.validation import Rule

LOAD_RULES = (
    Rule(
        field="pipeline.stateful",
        cel=(
            "!self.pipeline.stateful || self.pipeline.acceptIncompleteState || "
            "!(self.scaling.mode in ['Auto', 'External']) && "
            "!self.scaling.shards.autoSplit && !self.scaling.shards.autoMerge"
        ),
        message=(
            "with stateful, each shard that moves leaves its state behind: use scaling.mode Fixed or "
            "Recommend without autoSplit and autoMerge, or set pipeline.acceptIncompleteState"
        ),
        holds=lambda self: (
            not self.pipeline.stateful
            or self.pipeline.accept_incomplete_state
            or not self.scaling.moves_shards
        ),
    ),
)
