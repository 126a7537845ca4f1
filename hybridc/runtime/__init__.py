"""What emitted packages run on; it knows nothing of the compiler."""

from hybridc.runtime.context import Context, Output, PackedSeq
from hybridc.runtime.module import LanguageModel

__all__ = ["Context", "LanguageModel", "Output", "PackedSeq"]
