"""`python -m hybridc.ahead FOLDER TARGET`: compiles a package's kernels and prints what came of it, as JSON."""

import contextlib
import json
import sys
from pathlib import Path

from hybridc.ahead.package import build

if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for the result
        made = build(Path(sys.argv[1]), sys.argv[2])
    print(json.dumps(made))
