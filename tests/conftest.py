"""Settings that all tests share."""

import os
import tempfile

os.environ["TRITON_INTERPRET"] = "1"  # kernels run on CPU tensors; read where triton is imported

import torch
from hypothesis import HealthCheck, settings

MODULES = tempfile.TemporaryDirectory(prefix="hybridc-modules-")
os.environ["HF_MODULES_CACHE"] = MODULES.name  # where transformers copies code of models; read when it is imported
os.environ["HF_HUB_OFFLINE"] = "1"
EXAMPLES = int(os.environ.get("HYBRIDC_EXAMPLES", "200"))
"""Generated cases a property test tries; `make test-all` raises it."""

settings.register_profile(
    "hybridc", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile("hybridc")
torch.set_num_threads(1)
