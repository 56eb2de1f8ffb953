"""The one error of reading: a record that cannot be understood, with its named reason."""

from schemas.reasons import DeadReason


class DecodeError(ValueError):
    """A record that cannot be read. `reason` is a metric label and a header; `detail` is for a person and holds
    the place of the fault, never the record's content."""

    def __init__(self, reason: DeadReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
