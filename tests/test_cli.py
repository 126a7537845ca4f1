"""The command as a user meets it: outputs, exit statuses, and what goes wrong around it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hybridc import cli

Run = Callable[..., tuple[int, str, str]]

SPEC = """model tiny {
  param dim = 64
  let norm = rmsnorm()
  block H {
    x += norm >> attention(heads=4, kv_heads=2)
    x += norm >> swiglu(128)
  }
  embed = embedding(256)
  layers = H * 3
  head = norm >> lm_head(256)
}
"""
WRONG = SPEC.replace("kv_heads=2", "kv_heads=3").replace("swiglu(128)", "swiglu(wide)")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs `hybridc WORDS` in this process, in an empty folder; gives (status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "HYBRIDC_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hybridc", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capfd.readouterr()
        code = end.value.code
        return (code if isinstance(code, int) else 0), out, err

    return call


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.hyb"
    path.write_text(SPEC, encoding="utf-8")
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.hyb"
    path.write_text(WRONG, encoding="utf-8")
    return path


def process(*words: object, **more: object) -> subprocess.CompletedProcess[str]:
    """`hybridc WORDS` as a process of its own."""
    command = [sys.executable, "-m", "hybridc.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)  # type: ignore[call-overload, no-any-return]


# --- check ----------------------------------------------------------------------------------------------------------


def test_check_fine(run: Run, spec: Path) -> None:
    assert run("check", spec) == (0, f"{spec}: fine\n", "")


def test_check_wrong_shows_all_mistakes(run: Run, wrong: Path) -> None:
    status, out, err = run("check", wrong)
    assert status == 1 and err == ""
    assert "error[HYB101]" in out and f"{wrong}:6:25" in out
    assert "HYB202" in out or "1 error" in out


def test_check_many_files(run: Run, spec: Path, wrong: Path) -> None:
    status, out, _ = run("check", spec, wrong)
    assert status == 1
    assert f"{spec}: fine" in out and "error[" in out


def test_check_json(run: Run, wrong: Path, spec: Path) -> None:
    status, out, _ = run("check", "--format", "json", wrong)
    found = json.loads(out)
    assert status == 1
    assert {"code", "severity", "message", "help", "span"} <= set(found[0])
    assert found[0]["span"]["start"]["line"] == 6
    assert run("check", "--format", "json", spec)[1] == "[]\n"


def test_check_set_and_mesh(run: Run, spec: Path) -> None:
    assert run("check", spec, "--set", "dim=63")[0] == 1
    assert run("check", spec, "--mesh", "tp=2,dp=fsdp(4)")[0] == 0
    status, out, _ = run("check", spec, "--mesh", "tp=3")
    assert status == 1 and "HYB214" in out


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "dim"),
        ("--set", "=3"),
        ("--set", "dim="),
        ("--set", "dim=64", "--set", "dim=32"),
        ("--set", "width=64"),
        ("--mesh", "tp"),
        ("--mesh", "xp=2"),
        ("--mesh", "tp=fast"),
        ("--format", "yaml"),
        ("--frobnicate",),
    ],
    ids=" ".join,
)
def test_wrong_command_lines_give_2(run: Run, spec: Path, words: tuple[str, ...]) -> None:
    status, out, err = run("check", spec, *words)
    assert status == 2
    assert "Traceback" not in out + err


@pytest.mark.parametrize("name", ["missing.hyb", "."])
@pytest.mark.parametrize("command", ["check", "report", "fmt", "generate"])
def test_missing_files_and_folders(run: Run, command: str, name: str) -> None:
    more = ("--prompt", "a") if command == "generate" else ()
    status, out, err = run(command, name, *more)
    assert status == 2
    assert "Traceback" not in err + out and (out + err).strip()


def test_imports_from_include_folders(run: Run, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "parts.hyb").write_text("let norm = rmsnorm()\n", encoding="utf-8")
    spec = tmp_path / "a.hyb"
    spec.write_text('import "parts.hyb"\n' + SPEC.replace("  let norm = rmsnorm()\n", ""), encoding="utf-8")
    assert run("check", spec)[0] == 1
    assert run("check", spec, "-I", tmp_path / "lib")[0] == 0


# --- compile --------------------------------------------------------------------------------------------------------


def test_stage_times_are_read_from_a_file(run: Run, spec: Path, tmp_path: Path) -> None:
    (tmp_path / "times.json").write_text('{"embed": 0, "H": 1, "head": 4}')
    status, out, _ = run("compile", spec, "--mesh", "pp=2", "--stage-times", tmp_path / "times.json", "--emit", "ir")
    assert status == 0 and "@H * 2 | @H" in out
    for text, said in (("[1]", "no numbers by name"), ("{", "not JSON"), ('{"H": 1}', "HYB608")):
        (tmp_path / "times.json").write_text(text)
        status, _, err = run(
            "compile", spec, "--mesh", "pp=2", "--stage-times", tmp_path / "times.json", "--emit", "ir"
        )
        assert status == 2 and said in err


def test_compile_writes_a_package(run: Run, spec: Path, tmp_path: Path) -> None:
    status, out, err = run("compile", spec, "-o", "build/tiny", "--set", "dim=32")
    assert (status, out) == (0, "") and "build/tiny" in err
    manifest = json.loads((tmp_path / "build" / "tiny" / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["params"] == {"dim": 32}
    first = {p.name: p.read_bytes() for p in (tmp_path / "build" / "tiny").iterdir()}
    assert run("compile", spec, "-o", "build/tiny", "--set", "dim=32")[0] == 0
    assert {p.name: p.read_bytes() for p in (tmp_path / "build" / "tiny").iterdir()} == first


def test_compile_emit(run: Run, spec: Path) -> None:
    status, out, _ = run("compile", spec, "--emit", "ir")
    assert status == 0 and out.startswith("module @tiny {")
    status, out, _ = run("compile", spec, "--emit", "torch")
    assert status == 0 and "class Model(LanguageModel):" in out


def test_compile_print_after_and_time_passes(run: Run, spec: Path) -> None:
    status, out, err = run("compile", spec, "--print-after", "all", "--time-passes")
    assert status == 0
    assert [line for line in out.splitlines() if line.startswith("// after")] == [
        f"// after {name}" for name in ("expand", "infer", "simplify", "divide", "precision")
    ]
    assert "infer" in err and " ms" in err


def test_compile_mistakes(run: Run, spec: Path, wrong: Path, tmp_path: Path) -> None:
    assert run("compile", wrong, "-o", "out")[0] == 1
    assert not (tmp_path / "out").exists()
    assert run("compile", spec)[0] == 2
    assert run("compile", spec, "--emit", "cubin")[0] == 2
    status, _, err = run("compile", spec, "--emit", "ir", "--target", "tpu")
    assert status == 2 and "HYB601" in err
    assert run("compile", spec, "--print-after", "magic")[0] == 2
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work", encoding="utf-8")
    status, _, err = run("compile", spec, "-o", "mine")
    assert status == 2 and "HYB403" in err
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_unwritable_output(run: Run, spec: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    status, _, err = run("compile", spec, "-o", "file/out")
    assert status in (2, 3) and "Traceback" not in err
    status, _, err = run("report", spec, "--html", "file/out.html")
    assert status == 3 and "cannot write" in err
    status, _, err = run("report", spec, "--html", tmp_path)
    assert status == 2 and "folder" in err


# --- fmt ------------------------------------------------------------------------------------------------------------

UGLY = "model  a{ # why\n  embed=embedding(4,8)\n layers=H*2 ;head=lm_head(4)\n block H{x+=linear(8)}\n}\n"


def test_fmt_changes_files_and_says_so(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ugly.hyb"
    path.write_text(UGLY, encoding="utf-8")
    path.chmod(0o640)
    status, out, err = run("fmt", path)
    assert (status, out) == (0, "") and "changed" in err
    text = path.read_text(encoding="utf-8")
    assert "model a {  # why\n" in text and path.stat().st_mode & 0o777 == 0o640
    assert run("fmt", path) == (0, "", "")
    assert [p.name for p in tmp_path.iterdir()] == ["ugly.hyb"]


def test_fmt_check_and_diff_change_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "ugly.hyb"
    path.write_text(UGLY, encoding="utf-8")
    status, out, _ = run("fmt", "--check", path)
    assert status == 1 and "would be changed" in out
    status, out, _ = run("fmt", "--diff", path)
    assert status == 1 and out.startswith("--- ") and "+  layers = H * 2" in out
    assert path.read_text(encoding="utf-8") == UGLY


def test_fmt_keeps_links(run: Run, tmp_path: Path) -> None:
    (tmp_path / "real.hyb").write_text(UGLY, encoding="utf-8")
    (tmp_path / "link.hyb").symlink_to("real.hyb")
    assert run("fmt", "link.hyb")[0] == 0
    assert (tmp_path / "link.hyb").is_symlink()
    assert (tmp_path / "real.hyb").read_text(encoding="utf-8") != UGLY


def test_fmt_standard_input() -> None:
    done = process("fmt", "-", input=UGLY)
    assert done.returncode == 0 and done.stdout.startswith("model a {")
    assert process("fmt", "--check", "-", input=done.stdout).returncode == 0
    broken = process("fmt", "-", input="model {")
    assert broken.returncode == 1 and "<stdin>:1" in broken.stderr and broken.stdout == ""


def test_fmt_leaves_broken_files_alone(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.hyb"
    path.write_text("model a { embed = }", encoding="utf-8")
    status, _, err = run("fmt", path)
    assert status == 1 and "HYB001" in err
    assert path.read_text(encoding="utf-8") == "model a { embed = }"
    path.write_bytes(b"model \xff {}")
    assert run("fmt", path)[0] == 2


# --- ops, explain ---------------------------------------------------------------------------------------------------


def test_ops(run: Run) -> None:
    status, out, _ = run("ops")
    assert status == 0 and "attention(heads, kv_heads=heads" in out and "mamba2(" in out
    status, out, _ = run("ops", "moe")
    assert status == 0 and "router.weight" in out and "experts" in out and "triton" in out
    status, _, err = run("ops", "atention")
    assert status == 2 and "`attention`" in err


def test_every_op_has_a_page(run: Run) -> None:
    from hybridc.ir.describe import all_names

    for name in all_names():
        assert run("ops", name)[0] == 0


def test_explain(run: Run) -> None:
    status, out, _ = run("explain", "hyb214")
    assert status == 0 and out.startswith("HYB214: ")
    assert "HYB101" in run("explain")[1]
    status, _, err = run("explain", "HYB9")
    assert status == 2 and "HYB9" in err


# --- report ---------------------------------------------------------------------------------------------------------


def test_report(run: Run, spec: Path, tmp_path: Path) -> None:
    status, out, _ = run("report", spec, "--seq", 100, "--batch", 3)
    assert status == 0 and "3 x 100 tokens" in out
    status, out, err = run("report", spec, "--html", "pages/tiny.html")
    assert (status, out) == (0, "") and "written" in err
    assert (tmp_path / "pages" / "tiny.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run("report", spec, "--seq", 0)[0] == 2


def test_report_of_a_package_has_its_sizes(run: Run, spec: Path) -> None:
    run("compile", spec, "-o", "p", "--set", "dim=32", "--mesh", "dp=fsdp(2)")
    out = run("report", "p")[1]
    assert out == run("report", spec, "--set", "dim=32", "--mesh", "dp=fsdp(2)")[1]
    assert out != run("report", spec)[1]


def test_report_of_what_is_not_emitted(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mtp.hyb"
    path.write_text(SPEC.replace("layers = H * 3", "layers = H * 3\n  mtp = H * 1"), encoding="utf-8")
    assert run("report", path)[0] == 0
    assert run("compile", path, "-o", "out")[0] == 1


# --- around the commands ----------------------------------------------------------------------------------------------


def test_version_and_help(run: Run) -> None:
    from hybridc.version import VERSION

    assert run("--version") == (0, f"hybridc {VERSION}\n", "")
    status, out, _ = run("--help")
    assert status == 0
    for command in ("compile", "check", "fmt", "ops", "explain", "import", "generate", "report", "doctor"):
        assert command in out
        assert run(command, "--help")[0] == 0


def test_check_and_fmt_import_nothing_heavy(spec: Path) -> None:
    code = (
        "import sys\nfrom hybridc import cli\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'torch', 'sympy', 'pydantic', 'rich', 'numpy'}))\n"
    )
    for words in (["check"], ["fmt", "--check"]):
        command = [sys.executable, "-c", code, *words, str(spec)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


def test_compile_and_report_import_no_torch(spec: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom hybridc import cli\n"
        "try:\n    cli.main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('torch' in sys.modules)\n"
    )
    for words in (["compile", spec, "-o", tmp_path / "out"], ["report", spec]):
        command = [sys.executable, "-c", code, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.splitlines()[-1] == "False"


def test_reader_that_goes_away(spec: Path) -> None:
    calls = (["ops"], ["report", str(spec)], ["explain"], ["check", str(spec)], ["compile", str(spec), "--emit=ir"])
    for words in calls:
        command = [sys.executable, "-m", "hybridc.cli", *words]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        err = child.stderr.read()
        child.stderr.close()
        assert (child.wait(timeout=60), err) == (0, ""), words


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the device is Linux's")
def test_full_disk(spec: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [sys.executable, "-m", "hybridc.cli", "report", str(spec)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr.startswith("hybridc: cannot write to standard output")
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c() -> None:
    command = [sys.executable, "-m", "hybridc.cli", "fmt", "-"]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a test run in the background may have been started with the signal ignored, which children inherit
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    asleep = 0
    while asleep < 5 and child.poll() is None:  # until it waits for input
        time.sleep(0.3)
        state = Path(f"/proc/{child.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        asleep = asleep + 1 if state == "S" else 0
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in err and out == ""


def test_unexpected_exception_is_one_line(run: Run, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("hybridc.compiler.check", broken)
    status, out, err = run("check", spec)
    assert (status, out) == (70, "")
    assert len(err.splitlines()) == 1 and "internal error" in err and "RuntimeError" in err
    monkeypatch.setenv("HYBRIDC_DEBUG", "1")
    status, _, err = run("check", spec)
    assert status == 70 and "Traceback" in err and "test_cli.py" in err


def test_missing_package_is_named(run: Run, spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'tokenizers'", name="tokenizers.models")

    monkeypatch.setattr("hybridc.compiler.check", lacking)
    status, _, err = run("check", spec)
    assert status == 3 and "pip install tokenizers" in err


def test_colours(spec: Path, wrong: Path) -> None:
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    assert "\x1b" not in process("check", wrong, env=plain).stdout
    assert "\x1b[" in process("check", wrong, env={**plain, "FORCE_COLOR": "1"}).stdout
    assert "\x1b" not in process("check", wrong, env={**plain, "FORCE_COLOR": "1", "NO_COLOR": "1"}).stdout


def test_output_that_the_terminal_cannot_show(spec: Path) -> None:
    done = process("report", spec, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and "tiny" in done.stdout


# --- generate, import -------------------------------------------------------------------------------------------------


def test_generate_from_a_spec_and_a_package(run: Run, spec: Path) -> None:
    status, out, _ = run("generate", spec, "--ids", "1,2,3", "--max-new-tokens", 5)
    assert status == 0
    ids = [int(word) for word in out.split(",")]
    assert len(ids) == 5 and all(0 <= i < 256 for i in ids)
    run("compile", spec, "-o", "p")
    assert run("generate", "p", "--ids", "1 2 3", "--max-new-tokens", 5)[1] == out
    status, text, _ = run("generate", "p", "--prompt", "ab", "--max-new-tokens", 3)
    assert status == 0 and text.startswith("ab")


def test_generate_sampling_follows_the_seed(run: Run, spec: Path) -> None:
    words = ("generate", spec, "--ids", "7", "--max-new-tokens", 8, "--temperature", 1.0, "--top-k", 50, "--top-p", 0.9)
    first = run(*words, "--seed", 1)[1]
    assert run(*words, "--seed", 1)[1] == first
    assert run(*words, "--seed", 2)[1] != first


def test_generate_stops(run: Run, spec: Path) -> None:
    out = run("generate", spec, "--ids", "7", "--max-new-tokens", 8, "--temperature", 1.0)[1]
    ids = out.strip().split(",")
    shorter = run("generate", spec, "--ids", "7", "--max-new-tokens", 8, "--temperature", 1.0, "--stop", ids[4])[1]
    assert shorter.strip().split(",") == ids[: ids.index(ids[4])]


def test_generate_uses_weights(run: Run, spec: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_model

    import hybridc

    net = hybridc.compile(spec).load(seed=3)
    save_model(net, str(tmp_path / "w.safetensors"))
    status, out, _ = run("generate", spec, "--ids", "1,2", "--max-new-tokens", 4, "--weights", "w.safetensors")
    with torch.inference_mode():
        expected = []
        ids = torch.tensor([[1, 2]])
        for _ in range(4):  # the plain way, without a cache
            last = net(ids).logits[0, -1].argmax()
            expected.append(int(last))
            ids = torch.cat([ids, last.reshape(1, 1)], dim=1)
    assert status == 0 and [int(i) for i in out.split(",")] == expected


def test_generate_weights_that_do_not_fit(run: Run, spec: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"embed.embedding.weight": torch.zeros(3, 3)}, tmp_path / "a.safetensors")
    save_file({"nothing": torch.zeros(3)}, tmp_path / "b.safetensors")
    (tmp_path / "c.safetensors").write_bytes(b"no weights at all")
    for name in ("a", "b", "c", "missing"):
        status, _, err = run("generate", spec, "--ids", "1", "--weights", f"{name}.safetensors")
        assert status == 2 and "safetensors" in err and "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--prompt", "a", "--ids", "1"),
        ("--prompt", ""),
        ("--ids", "300"),
        ("--ids", "1,x"),
        ("--ids", "-1"),
        ("--ids", "1", "--top-p", "2"),
        ("--ids", "1", "--temperature", "-1"),
        ("--prompt", "a", "--stop", "ab"),
    ],
    ids=" ".join,
)
def test_generate_wrong_words(run: Run, spec: Path, words: tuple[str, ...]) -> None:
    status, _, err = run("generate", spec, *words)
    assert status == 2 and "Traceback" not in err


def test_generate_with_a_tokenizer(run: Run, spec: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: n for n, word in enumerate(["[UNK]", "the", "cat", "sat"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    status, out, _ = run("generate", spec, "--prompt", "the cat", "--max-new-tokens", 3)
    assert status == 0 and out.startswith("the cat")
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    status, _, err = run("generate", spec, "--prompt", "the cat")
    assert status == 2 and "tokenizer.json" in err


def test_import_hf(run: Run, tmp_path: Path) -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )  # fmt: skip
    config.save_pretrained(tmp_path / "llama")
    status, text, _ = run("import", "hf", "llama")
    assert status == 0 and text.startswith("model ")
    status, out, err = run("import", "hf", "llama", "-o", "llama.hyb")
    assert (status, out) == (0, "") and "llama.hyb" in err
    assert (tmp_path / "llama.hyb").read_text(encoding="utf-8") == text
    assert run("check", "llama.hyb")[0] == 0
    status, _, err = run("import", "hf", "nowhere")
    assert status == 2 and "Traceback" not in err and err.strip()


@pytest.mark.parametrize(
    "words",
    [
        ["--top-p", "0"],
        ["--top-p", "nan"],
        ["--temperature", "nan"],
        ["--max-new-tokens", "99999999999999"],
        ["--stop", "1" * 5000],
    ],
)
def test_generate_refuses_what_makes_no_sense(run: Run, spec: Path, words: list[str]) -> None:
    status, _, err = run("generate", spec, "--prompt", "a", *words)
    assert status == 2 and "internal" not in err


def test_generate_with_odd_numbers(run: Run, spec: Path, tmp_path: Path) -> None:
    status, _, err = run("generate", spec, "--ids", "1" * 5000)
    assert status == 2 and "internal" not in err
    cold = run("generate", spec, "--prompt", "a", "--temperature", "1e-40", "--max-new-tokens", "2")
    assert cold[0] == 0 and cold[1] == run("generate", spec, "--prompt", "a", "--max-new-tokens", "2")[1]
    status, _, err = run("compile", spec, "-o", tmp_path / ("n" * 300))
    assert status == 3 and "internal" not in err


def test_a_broken_package_is_named(run: Run, spec: Path, tmp_path: Path) -> None:
    assert run("compile", spec, "-o", tmp_path / "p")[0] == 0
    (tmp_path / "p" / "model.py").write_text("def (")
    status, _, err = run("generate", tmp_path / "p", "--prompt", "a")
    assert status == 2 and "model.py" in err


# --- GGUF files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A small model in a file with a vocabulary of bytes, whose letters are their own ids behind two others."""
    from tests.frontend.gguf.made import model, write

    letters = [chr(n) for n in range(33, 127)]
    tokens = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": ["<s>", "</s>", *letters, "\u0120"],
        "tokenizer.ggml.token_type": [3, 3] + [1] * 95,
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }
    tokens["tokenizer.ggml.tokens"] += ["ab"]
    tokens["tokenizer.ggml.token_type"] += [1]
    write(tmp_path / "m.gguf", model(vocab_size=98), **tokens, **{"tokenizer.ggml.eos_token_id": 1})
    return tmp_path / "m.gguf"


def test_initial_weights_are_said_to_be_such(run: Run, spec: Path, tmp_path: Path) -> None:
    status, out, err = run("generate", spec, "--ids", "1,2", "--max-new-tokens", 2)
    assert status == 0 and out and "initial" in err and "--weights" in err
    config = {
        "model_type": "llama",
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": 64,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert run("import", "hf", tmp_path, "-o", "l.hyb")[0] == 0
    status, _, err = run("export", "hf", "l.hyb", "out")
    assert status == 0 and "initial" in err


def test_import_nemotron(run: Run, tmp_path: Path) -> None:
    status, text, err = run("import", "nemotron", "M-M*-E")
    assert status == 0 and err == ""
    assert 'layers = pattern("M-M*-E", M=Mamba, "*"=Attention, "-"=Mlp, E=Moe)' in text
    assert run("import", "nemotron", "M-M*-E", "-o", "n.hyb") == (0, "", "n.hyb: written\n")
    assert (tmp_path / "n.hyb").read_text(encoding="utf-8") == text
    assert run("check", "n.hyb")[0] == 0
    for letters in ("M-X", ""):
        status, out, err = run("import", "nemotron", letters)
        assert status == 1 and out == "" and "HYB503" in err


def test_import_gguf(run: Run, gguf: Path, tmp_path: Path) -> None:
    status, text, err = run("import", "gguf", gguf)
    assert status == 0 and err == "" and text.startswith("model llama {")
    assert run("import", "gguf", gguf, "-o", "m.hyb") == (0, "", "m.hyb: written\n")
    assert (tmp_path / "m.hyb").read_text() == text
    assert run("check", "m.hyb")[0] == 0
    assert run("import", "gguf", gguf, "--to", "out", "--dtype", "bfloat16") == (0, "", "out: written\n")
    assert run("import", "hf", "out") == (0, text, "")
    status, _, err = run("import", "gguf", gguf, "--to", "out")
    assert status == 2 and "HYB403" in err


def test_import_gguf_says_what_is_wrong(run: Run, spec: Path, tmp_path: Path) -> None:
    for words in ((spec,), (tmp_path / "none.gguf",), (tmp_path,)):
        status, out, err = run("import", "gguf", *words)
        assert status == 2 and out == "" and "HYB520" in err and "Traceback" not in err
    status, _, err = run("import", "gguf", spec, "--dtype", "float16")
    assert status == 2 and "--to" in err


def test_generate_from_a_gguf_file(run: Run, gguf: Path) -> None:
    assert run("import", "gguf", gguf, "--to", "out")[0] == 0
    words = ("--prompt", "x ab", "--max-new-tokens", 12, "--ignore-eos")
    status, text, err = run("generate", gguf, *words)
    assert status == 0 and err == "" and text.startswith("x ab")
    assert run("generate", "out", *words)[1] == text
    # bos, x, a space, ab: the vocabulary's places
    ids = run("generate", gguf, "--ids", "0,89,96,97", "--max-new-tokens", 12, "--ignore-eos")[1]
    letters = ["<s>", "</s>", *(chr(n) for n in range(33, 127)), " ", "ab"]
    assert text[4:-1] == "".join(letters[int(i)] for i in ids.split(",") if int(i) > 1)


def test_the_end_that_a_model_names_ends_a_sample(run: Run, gguf: Path, tmp_path: Path) -> None:
    run("import", "gguf", gguf, "--to", "out")
    words = ("generate", "out", "--ids", "5", "--max-new-tokens", 8)
    (tmp_path / "out" / "generation_config.json").write_text("{}")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    ids = run(*words, "--ignore-eos")[1].strip().split(",")
    assert len(ids) == 8
    config["eos_token_id"] = int(ids[4])
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    assert run(*words)[1] == ",".join(ids[: ids.index(ids[4])]) + "\n"
    assert run(*words, "--ignore-eos")[1] == ",".join(ids) + "\n"


def test_generate_from_a_gguf_file_says_what_is_wrong(run: Run, gguf: Path, tmp_path: Path) -> None:
    status, _, err = run("generate", gguf, "--prompt", "x", "--set", "dim=3")
    assert status == 2 and "--set" in err
    status, _, err = run("generate", tmp_path, "--prompt", "x")
    assert status == 2 and str(gguf) in err
    gguf.write_bytes(gguf.read_bytes()[:-100])
    status, _, err = run("generate", gguf, "--prompt", "x")
    assert status == 2 and "HYB520" in err
    (tmp_path / "empty.gguf").write_bytes(b"")
    status, _, err = run("generate", "empty.gguf", "--prompt", "x")
    assert status == 2 and "HYB520" in err
