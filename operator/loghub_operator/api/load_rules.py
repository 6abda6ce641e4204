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
    Rule(
        field="scaling.scaleToZero",
        cel=(
            "!has(self.scaling.scaleToZero) || !has(self.pipeline.processor) || "
            "!has(self.pipeline.processor.retryLogstore)"
        ),
        message=(
            "with retryLogstore, what waits there needs a worker: leave out scaleToZero, which looks at "
            "the logs of spec.logstore only"
        ),
        holds=lambda self: (
            self.scaling.scale_to_zero is None
            or self.pipeline.processor is None
            or self.pipeline.processor.retry_logstore is None
        ),
    ),
)
