"""What is installed, what follows from it, and how to get what is missing.

Packages are imported in processes of their own: a broken one may crash, hang or print, and none of them is needed to
say so.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

TIMEOUT = 60.0
"""Seconds that an import may take."""


@dataclass(frozen=True)
class Package:
    """A package that hybridc can use: the module to import, the distributions that bring it, why, how to get it."""

    name: str
    module: str
    distributions: tuple[str, ...]
    purpose: str
    install: str
    needed: bool = False
    linux: bool = False


PIP = "python -m pip install"
NO_ISOLATION = f"{PIP} --no-build-isolation"

PACKAGES = (
    Package("torch", "torch", ("torch",), "runs emitted modules", f'{PIP} "torch>=2.11"', needed=True),
    Package("triton", "triton", ("triton",), "GPU kernels", f'{PIP} "triton>=3.4"', needed=True, linux=True),
    Package("lark", "lark", ("lark",), "reads specs", f'{PIP} "lark>=1.2"', needed=True),
    Package("pydantic", "pydantic", ("pydantic",), "reads foreign configs", f'{PIP} "pydantic>=2.9"', needed=True),
    Package("sympy", "sympy", ("sympy",), "costs and derivatives", f'{PIP} "sympy>=1.13.3"', needed=True),
    Package("numpy", "numpy", ("numpy",), "arrays", f'{PIP} "numpy>=2.0"', needed=True),
    Package("safetensors", "safetensors", ("safetensors",), "weights", f'{PIP} "safetensors>=0.5"', needed=True),
    Package("rich", "rich", ("rich",), "tables and colours", f'{PIP} "rich>=13.9"', needed=True),
    Package("typer", "typer", ("typer",), "the command line", f'{PIP} "typer>=0.20,<0.29"', needed=True),
    Package("transformers", "transformers", ("transformers",), "runs models emitted for it", f'{PIP} "hybridc[hf]"'),
    Package("tokenizers", "tokenizers", ("tokenizers",), "tokenizer.json of a checkpoint", f'{PIP} "hybridc[hf]"'),
    Package("gguf", "gguf", ("gguf",), "weights of GGUF files", f'{PIP} "hybridc[gguf]"'),
    Package(
        "flash-linear-attention",
        "fla",
        ("flash-linear-attention", "fla-core"),
        "GPU kernels for linear attention",
        f'{PIP} "hybridc[cuda]"',
    ),
    Package("flash-attn", "flash_attn", ("flash-attn",), "GPU attention kernels", f"{NO_ISOLATION} flash-attn"),
    Package("mamba-ssm", "mamba_ssm", ("mamba-ssm",), "GPU Mamba kernels", f"{NO_ISOLATION} mamba-ssm"),
    Package(
        "causal-conv1d", "causal_conv1d", ("causal-conv1d",), "GPU convolution kernels", f"{NO_ISOLATION} causal-conv1d"
    ),
    Package(
        "transformer-engine",
        "transformer_engine.pytorch",
        ("transformer-engine", "transformer_engine"),
        "fp8 on NVIDIA GPUs",
        f'{NO_ISOLATION} "transformer_engine[pytorch]"',
    ),
    Package(
        "deepep",
        "deep_ep",
        ("deep-ep", "deep_ep"),
        "expert-parallel dispatch",
        f"{NO_ISOLATION} git+https://github.com/deepseek-ai/DeepEP",
    ),
    Package(
        "nvshmem",
        "nvshmem",
        ("nvshmem4py-cu13", "nvshmem4py-cu12"),
        "one-sided GPU copies",
        f"{PIP} nvshmem4py-cu{{cuda}}",
    ),
)

PACKAGE_OF = {"fla-core": "flash-linear-attention"}
"""Names of packages here, where those are not what pip calls them."""

_TORCH = (
    "import json, torch;"
    "c = torch.cuda;"
    "n = c.device_count() if c.is_available() else 0;"
    "print(json.dumps({'cuda': torch.version.cuda, 'devices':"
    " [[c.get_device_name(i), list(c.get_device_capability(i)), c.get_device_properties(i).total_memory]"
    " for i in range(n)]}))"
)


@dataclass(frozen=True)
class Finding:
    """A package's state: "ok", "missing" or "broken", the last with why. `install` mends what is not ok."""

    name: str
    purpose: str
    needed: bool
    state: str
    version: str = ""
    detail: str = ""
    install: str = ""


@dataclass(frozen=True)
class Device:
    """A CUDA device: its name, compute capability, bytes of memory."""

    name: str
    capability: tuple[int, int]
    memory: int


@dataclass(frozen=True)
class Target:
    """A target of `hybridc compile`: whether emitted code runs on this machine, and if not, why."""

    name: str
    runs: bool
    detail: str


@dataclass(frozen=True)
class Backend:
    """What computes parts of ops: how many of them it has, and whether it is usable here."""

    name: str
    parts: int
    usable: bool


@dataclass(frozen=True)
class Diagnosis:
    """Everything that `hybridc doctor` says."""

    python: str
    hybridc: str
    system: str
    cuda: str
    packages: tuple[Finding, ...]
    devices: tuple[Device, ...] = ()
    targets: tuple[Target, ...] = ()
    backends: tuple[Backend, ...] = field(default=())

    @property
    def healthy(self) -> bool:
        """Whether everything needed is there and works."""
        return all(f.state == "ok" for f in self.packages if f.needed)


@dataclass(frozen=True)
class Outcome:
    """How a process ended: its status (None when it ran out of time), what it printed."""

    status: int | None
    out: str
    err: str


Runner = Callable[[str], Outcome]


def run_python(code: str, *, timeout: float = TIMEOUT) -> Outcome:
    """Runs code in a fresh interpreter that does not look into the current folder for modules."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", code],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
    except subprocess.TimeoutExpired:
        return Outcome(None, "", "")
    return Outcome(done.returncode, done.stdout, done.stderr)


def installed_version(distributions: Sequence[str]) -> str:
    """The version of the first distribution that is installed, or ""."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def diagnose(
    *,
    packages: Sequence[Package] = PACKAGES,
    run: Runner = run_python,
    version: Callable[[Sequence[str]], str] = installed_version,
) -> Diagnosis:
    """Looks at this machine. `run` and `version` are how packages are tried and found."""
    from hybridc.version import VERSION

    wanted = [p for p in packages if not p.linux or sys.platform.startswith("linux")]
    versions = {p.name: version(p.distributions) for p in wanted}
    with ThreadPoolExecutor(max_workers=2) as pool:
        tried = {p.name: pool.submit(run, _code(p)) for p in wanted if versions[p.name]}
        outcomes = {name: future.result() for name, future in tried.items()}
    cuda, devices = _cuda(outcomes.get("torch"))
    findings = tuple(_finding(p, versions[p.name], outcomes.get(p.name), cuda) for p in wanted)
    return Diagnosis(
        python=platform.python_version(),
        hybridc=VERSION,
        system=f"{platform.system()} {platform.machine()}",
        cuda=cuda,
        packages=findings,
        devices=devices,
        targets=_targets({f.name for f in findings if f.state == "ok"}, devices),
        backends=_backends({f.name for f in findings if f.state == "ok"}, devices),
    )


def _code(package: Package) -> str:
    return _TORCH if package.name == "torch" else f"import {package.module}"


def _cuda(outcome: Outcome | None) -> tuple[str, tuple[Device, ...]]:
    """The CUDA version that torch was built for ("" for none), and the devices that it sees."""
    if outcome is None or outcome.status != 0:
        return "", ()
    try:
        found = json.loads(outcome.out.strip().splitlines()[-1])
        devices = tuple(Device(n, (int(c[0]), int(c[1])), int(m)) for n, c, m in found["devices"])
        return str(found["cuda"] or ""), devices
    except (ValueError, IndexError, KeyError, TypeError):
        return "", ()


def _finding(package: Package, version: str, outcome: Outcome | None, cuda: str) -> Finding:
    install = package.install.format(cuda=cuda.partition(".")[0] or "12")
    if outcome is None:
        return Finding(package.name, package.purpose, package.needed, "missing", install=install)
    if outcome.status == 0:
        return Finding(package.name, package.purpose, package.needed, "ok", version)
    detail, rebuild = why(outcome)
    if rebuild:
        install = install.replace("install ", "install --force-reinstall --no-deps --no-cache-dir ", 1)
    return Finding(package.name, package.purpose, package.needed, "broken", version, detail, install)


def why(outcome: Outcome) -> tuple[str, bool]:
    """One sentence on a failed import, and whether building the package anew would mend it."""
    if outcome.status is None:
        return f"its import did not end within {TIMEOUT:.0f} s", False
    if outcome.status < 0:
        return f"its import crashed (signal {-outcome.status})", True
    lines = [line.strip() for line in outcome.err.splitlines() if line.strip()]
    last = lines[-1][:200] if lines else f"exit status {outcome.status}"
    if "undefined symbol" in last:
        return f"it was built for another torch: {last}", True
    if "libcud" in last or "libnv" in last or "libcublas" in last:
        return f"it was built for another CUDA: {last}", True
    if "GLIBC" in last or "cannot open shared object file" in last:
        return f"a system library is missing or too old: {last}", False
    if "No module named" in last:
        return f"a package that it needs is missing: {last}", False
    return last, True


def _targets(working: set[str], devices: Sequence[Device]) -> tuple[Target, ...]:
    """The targets; code for a GPU can be emitted without one."""
    from hybridc.ir.backends import TARGETS, capability

    runs = "torch" in working
    out = []
    for name in TARGETS:
        major, minor = divmod(capability(name), 10)
        fit = [d.name for d in devices if d.capability[0] == major and d.capability[1] >= minor]
        if not major:
            out.append(Target(name, runs, "" if runs else "torch is missing or broken"))
        elif fit:
            out.append(Target(name, True, fit[0]))
        else:
            out.append(Target(name, False, f"emit only: no device of compute capability {major}.{minor}"))
    return tuple(out)


def _backends(working: set[str], devices: Sequence[Device]) -> tuple[Backend, ...]:
    """Who computes parts of ops, and whether that is here: all but torch run on GPUs alone."""
    from hybridc.ir.backends import BACKENDS

    out = []
    for name, backend in BACKENDS.items():
        needed = {"torch"} if name == "torch" else {"torch", PACKAGE_OF.get(backend.package, backend.package or name)}
        usable = needed <= working and (name == "torch" or bool(devices))
        out.append(Backend(name, len(backend.offers), usable))
    return tuple(out)


def as_json(diagnosis: Diagnosis) -> str:
    """The diagnosis for programs."""
    return json.dumps({**asdict(diagnosis), "healthy": diagnosis.healthy}, indent=2) + "\n"


def as_text(diagnosis: Diagnosis, *, width: int, color: bool) -> str:
    """The diagnosis for people, at most `width` columns wide."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from hybridc.console import canvas

    console, out = canvas(width, color)
    cuda = f", CUDA {diagnosis.cuda}" if diagnosis.cuda else ", no CUDA in torch"
    console.print(Text(f"hybridc {diagnosis.hybridc}, Python {diagnosis.python}, {diagnosis.system}{cuda}\n", "bold"))
    styles = {"ok": "green", "missing": "dim", "broken": "bold red"}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("package", "state", "version", "for"):
        table.add_column(name, no_wrap=name != "for", overflow="fold")
    for f in diagnosis.packages:
        state = "needed" if f.needed and f.state == "missing" else f.state
        table.add_row(f.name, Text(state, styles.get(state, "bold red")), f.version, f.purpose)
    console.print(table)
    for d in diagnosis.devices:
        capability = ".".join(map(str, d.capability))
        console.print(f"device: {d.name}, compute capability {capability}, {d.memory / 2**30:.0f} GiB")
    console.print("\nTargets")
    for t in diagnosis.targets:
        word = Text("runs here" if t.runs else "", "green")
        console.print(Text(f"  {t.name:11s} ").append_text(word).append(f" {t.detail}".rstrip()))
    console.print("\nBackends of ops")
    for b in diagnosis.backends:
        console.print(
            f"  {b.name:11s} {b.parts} part{'s' * (b.parts != 1)} of ops, {'usable' if b.usable else 'not usable here'}"
        )
    bad = [f for f in diagnosis.packages if f.state != "ok"]
    for title, found in (
        ("Broken", [f for f in bad if f.state == "broken"]),
        ("Missing and needed", [f for f in bad if f.state == "missing" and f.needed]),
        ("Optional", [f for f in bad if f.state == "missing" and not f.needed]),
    ):
        if found:
            console.print(f"\n{title}")
        for f in found:
            console.print(Text(f"  {f.name}" + (f": {f.detail}" if f.detail else ""), "red" if f.detail else ""))
            console.print(Text(f"      {f.install}"), soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
