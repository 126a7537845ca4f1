"""What is said where a library that a model was compiled for is not there."""

from __future__ import annotations

from hybridc.runtime.errors import UsageError


def missing(package: str, error: ImportError) -> UsageError:
    """The error for a library that pip calls `package` and whose import failed with `error`."""
    return UsageError(
        f"this model was compiled for {package}, which cannot be imported here ({error})",
        "install it (`hybridc doctor` says how), or compile the model without it in --with",
    )
