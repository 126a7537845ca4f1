"""The `hybridc` command: one function a command, each a few lines over the rest of the package.

Heavy imports stand inside of the functions: `check` and `fmt` need neither torch nor rich.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import hybridc.console as console
from hybridc.cli_formats import exporting, importing
from hybridc.console import Stop, wrong

app = typer.Typer(
    name="hybridc",
    help="A declarative graph compiler for hybrid language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(importing, name="import")
app.add_typer(exporting, name="export")

Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file.")]
Specs = Annotated[list[Path], typer.Argument(metavar="SPEC...", help="Spec files.")]
Include = Annotated[
    list[Path] | None, typer.Option("-I", metavar="DIR", help="A folder to look for imports in; may be repeated.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="K=V", help="Another value for a param; may be repeated.")
]
Mesh = Annotated[str, typer.Option("--mesh", metavar="AXES", help="Sizes of mesh axes, such as tp=2,ep=4.")]
Libraries = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="LIBRARIES",
        help="What emitted code for a GPU may call, such as te,mamba_ssm,fla,flash_attn; `found`: what is installed.",
    ),
]
Format = Annotated[Literal["text", "json"], typer.Option("--format", help="How to print the result.")]


def _version(wanted: bool) -> None:
    if wanted:
        from hybridc.version import VERSION

        console.write(f"hybridc {VERSION}\n")
        raise typer.Exit()


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A declarative graph compiler for hybrid language models."""


@app.command()
def compile(
    spec: Spec,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Write the package into this folder.")
    ] = None,
    target: Annotated[str, typer.Option(help="cpu, cuda:sm80, cuda:sm90 or cuda:sm100.")] = "cpu",
    libraries: Libraries = None,
    set: Set = None,
    mesh: Mesh = "",
    include: Include = None,
    emit: Annotated[
        Literal["ir", "torch", "triton", "cubin"] | None,
        typer.Option(
            help="Print the IR, the torch code or its Triton kernels; cubin: compile kernels ahead, into the package."
        ),
    ] = None,
    print_after: Annotated[
        str, typer.Option("--print-after", metavar="PASS", help="Print the IR after a pass, or after all.")
    ] = "",
    time_passes: Annotated[bool, typer.Option("--time-passes", help="Print how long each pass took.")] = False,
    form: Annotated[
        Literal["torch", "transformers"],
        typer.Option("--as", help="A plain package, or one that transformers loads with trust_remote_code=True."),
    ] = "torch",
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --as transformers: weights by the net's own names.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="With --as transformers: initial weights drawn from this seed.")
    ] = None,
    stage_times: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With pp: JSON of milliseconds by block, by which stages are cut."),
    ] = None,
) -> None:
    """Compile a spec to a package of readable PyTorch."""
    from hybridc.compiler import compile as compile_spec

    if out is None and emit is None and not print_after:
        wrong("say where the package goes with -o DIR, or what to print with --emit")
    if emit == "triton" and target == "cpu":
        wrong("a module for the CPU calls no kernels: give --target cuda:sm90")
    if emit == "cubin" and (target == "cpu" or out is None or form != "torch"):
        wrong("--emit cubin puts kernels into a plain package for a GPU: give --target cuda:sm90 and -o DIR")
    source = spec
    if form == "transformers":
        from hybridc.checkpoints.transformers_package import spec_of

        if mesh:
            wrong("a package for transformers is for one rank: leave out --mesh")
        source = spec_of(spec, set or ())
    elif weights is not None or seed is not None:
        wrong("--weights and --seed belong to --as transformers: a plain package has no weights")
    compiled = compile_spec(
        source,
        target=target,
        libraries=[name for given in libraries or () for name in console.split(given)],
        params=console.pairs(set or (), "--set"),
        mesh=console.pairs(console.split(mesh), "--mesh"),
        include=include or (),
        print_after=console.split(print_after),
        out=lambda text: console.write(f"{text}\n"),
        stage_times=console.read_times(stage_times),
        serial=form == "transformers",
    )
    console.show(compiled.warnings, compiled.sources)
    if time_passes:
        lines = [f"{t.name:12s} {1000 * t.seconds:8.1f} ms" for t in compiled.timings]
        console.write("\n".join(lines) + "\n", sys.stderr)
    if emit == "ir":
        from hybridc.ir.text import print_module

        console.write(print_module(compiled.ir))
    elif emit in ("torch", "triton"):
        console.write(compiled.source.get("model.py" if emit == "torch" else "kernels.py", ""))
    if out is not None:
        if form == "transformers":
            from hybridc.checkpoints.transformers_package import write

            files = write(spec, compiled, out, weights=weights, seed=seed, include=include or ())
        elif emit == "cubin":
            from hybridc.ahead.package import write_with_kernels

            files, found = write_with_kernels(compiled.source, out, target)
            console.show(found, compiled.sources)
        else:
            files = list(compiled.source)
            compiled.save(out)
        console.write(f"{out}: {compiled.ir.name}, {', '.join(files)}\n", sys.stderr)


@app.command()
def check(specs: Specs, set: Set = None, mesh: Mesh = "", include: Include = None, format: Format = "text") -> None:
    """Say everything that is wrong with specs."""
    from hybridc.compiler import check as check_spec

    params, axes = console.pairs(set or (), "--set"), console.pairs(console.split(mesh), "--mesh")
    sinks = [check_spec(s, params=params, mesh=axes, include=include or ()) for s in specs]
    console.report(sinks, format, [f"{s}: fine" for s in specs])


@app.command()
def fmt(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Spec files, or - for standard input.")],
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit with 1 where something would.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="As --check, and print what would change.")] = False,
) -> None:
    """Put specs into canonical form; every comment stays at its place."""
    from hybridc.frontend.document import format_source

    changed = 0
    for file in files:
        text = console.read_text(file)
        done = format_source(text, "<stdin>" if file == "-" else file)
        changed += done != text
        if diff:
            console.write(_diff(text, done, file))
        elif check and done != text:
            console.write(f"{file}: would be changed\n")
        elif file == "-" and not check:
            console.write(done)
        elif done != text and not check:
            console.write_file(Path(file), done)
            console.write(f"{file}: changed\n", sys.stderr)
    raise Stop(console.SPEC_WRONG if changed and (check or diff) else console.FINE)


def _diff(before: str, after: str, file: str) -> str:
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), file, f"{file} (formatted)"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ no newline at the end\n" for line in lines)


@app.command()
def ops(name: Annotated[str, typer.Argument(metavar="[NAME]", help="One op.")] = "") -> None:
    """List all ops with their signatures, or print everything about one."""
    from hybridc.report.ops import listing, page

    console.write(page(name, width=console.width(sys.stdout)) if name else listing())


@app.command()
def explain(code: Annotated[str, typer.Argument(metavar="[CODE]", help="A code such as HYB214.")] = "") -> None:
    """Explain a diagnostic code at length, or list all codes."""
    from hybridc.diagnostics.codes import CODES
    from hybridc.diagnostics.render import explain as long_form

    if not code:
        console.write("".join(f"{c}  {entry.title}\n" for c, entry in sorted(CODES.items())))
        return
    try:
        console.write(long_form(code))
    except KeyError as error:
        wrong(str(error.args[0]))


@app.command()
def generate(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A spec, an emitted package, a checkpoint's folder, or a GGUF file."),
    ],
    prompt: Annotated[str | None, typer.Option(help="Text to go on from.")] = None,
    ids: Annotated[str | None, typer.Option(metavar="1,2,3", help="Token ids to go on from; ids are printed.")] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A safetensors file with the weights of a spec or package.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens to make at most.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest token.")] = 0.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from the k likeliest tokens; 0 from all.")] = 0,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Draw from the likeliest tokens of this mass.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed draws the same text.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(help="An id, or a text of one token, that ends the text; may be repeated.")
    ] = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Go on where the model ends the text; else the text ends there.")
    ] = False,
    set: Set = None,
    include: Include = None,
) -> None:
    """Write on from a prompt."""
    from hybridc.prompting import complete

    if (prompt is None) == (ids is None):
        wrong("give either --prompt TEXT or --ids 1,2,3")
    console.write(
        complete(
            source,
            prompt=prompt,
            ids=ids,
            weights=weights,
            params=console.pairs(set or (), "--set"),
            include=include or (),
            stop=stop or (),
            ignore_eos=ignore_eos,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
        )
    )


@app.command()
def report(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec file or an emitted package.")],
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one page instead.")] = None,
    seq: Annotated[int, typer.Option(min=1, max=2**30, help="Tokens of a row.")] = 2048,
    batch: Annotated[int, typer.Option(min=1, max=2**20, help="Rows.")] = 1,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="The kernels for --target instead, each compiled, as a table.")
    ] = False,
    target: Annotated[str, typer.Option(help="With --kernels: cuda:sm80, cuda:sm90 or cuda:sm100.")] = "",
    set: Set = None,
    mesh: Mesh = "",
    include: Include = None,
) -> None:
    """Draw a model and say what it costs."""
    from hybridc.report.model import read_module

    params, axes = console.pairs(set or (), "--set"), console.pairs(console.split(mesh), "--mesh")
    if kernels:
        _report_kernels(spec, target, params, axes, include or [])
        return
    if target:
        wrong("--target belongs to --kernels: costs are the same on all targets")
    module, sink = read_module(spec, params, axes, include or ())
    console.show(sink.diagnostics, sink.sources)
    if html is not None:
        from hybridc.report.html import render as page

        console.write_file(html, page(module, batch=batch, seq=seq))
        console.write(f"{html}: written\n", sys.stderr)
    else:
        from hybridc.report.terminal import render

        out = sys.stdout
        console.write(render(module, batch=batch, seq=seq, width=console.width(out), color=console.color(out)))


def _report_kernels(spec: Path, target: str, params: dict[str, str], mesh: dict[str, str], include: list[Path]) -> None:
    from hybridc.report.kernels import read_kernels, render

    found = read_kernels(spec, target, params, mesh, include)
    console.show(found.warnings, found.sources)
    out = sys.stdout
    console.write(render(found, width=console.width(out), color=console.color(out)))


@app.command()
def doctor(format: Format = "text") -> None:
    """Say what is installed, what can be compiled and run with it, and how to get what is missing."""
    from hybridc.doctor import as_json, as_text, diagnose

    found = diagnose()
    out = sys.stdout
    if format == "json":
        console.write(as_json(found))
    else:
        console.write(as_text(found, width=console.width(out), color=console.color(out)))
    raise Stop(console.FINE if found.healthy else console.ENVIRONMENT_LACKS)


def main() -> None:
    """Runs the command and ends the process with its status; whatever goes wrong is said in one line."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(console.finish(error))


if __name__ == "__main__":
    main()
