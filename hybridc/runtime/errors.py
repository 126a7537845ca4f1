"""What the runtime says when it is used in a way that cannot work."""


class UsageError(ValueError):
    """A call that cannot work: one sentence says why, one how to mend it."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(f"{cause}; {remedy}")
        self.cause = cause
        self.remedy = remedy
