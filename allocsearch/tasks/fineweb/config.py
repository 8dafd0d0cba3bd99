"""The fields of the FineWeb task."""

from pydantic import model_validator

from allocsearch.parsing import Count, Section


class EvaluationConfig(Section):
    """What held-out text a network is scored on, and how."""

    n_valid: Count = 16_384
    """Tokens of held-out text that the objective is measured on."""
    n_test: Count = 16_384
    """Tokens of held-out text for finalists, none of which are of `n_valid`."""
    n_slots: Count = 8
    """Streams that held-out text is read as, side by side."""
    streaming: bool = True
    """Score non-recurrent networks with the rolling cache as well, as
    `streaming_loss`; they are trained, and compared, on independent windows."""


class FineWebConfig(Section):
    """The FineWeb task."""

    data: str | None = None
    """Directory of token shards, or text files; a small built-in text if unset."""
    tokenizer: str | None = None
    """`gpt2`, `bytes` or a tokenizer's file; that of the data if unset."""
    window: Count = 64
    """Tokens T of every stream between updates, and that attention looks back on."""
    n_slots: Count = 32
    """Streams B that are trained on side by side; an update is B·T tokens."""
    updates_per_chunk: Count = 8
    """Optimiser updates in one compiled chunk of training."""
    reset_at_documents: bool = False
    """Start anew at every document, and not only where a file of tokens begins."""
    tie: bool = False
    """Read logits off with the token embedding, transposed, instead of a matrix."""
    loss_chunk: Count = 1024
    """Positions whose logits are in memory at once."""
    data_parallel: bool | None = None
    """Spread streams over all visible devices; if unset, where they divide evenly."""
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _evaluation_has_a_window(self) -> "FineWebConfig":
        least = self.evaluation.n_slots * self.window + 1
        for name in ("n_valid", "n_test"):
            n = getattr(self.evaluation, name)
            if n < least:
                raise ValueError(
                    f"evaluation.{name} = {n} is less than one window of every "
                    f"stream, evaluation.n_slots * window + 1 = {least} tokens"
                )
        return self
