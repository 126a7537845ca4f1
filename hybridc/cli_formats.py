"""`hybridc import` and `hybridc export`: specs and checkpoints of other formats."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

import hybridc.console as console
from hybridc.console import wrong

importing = typer.Typer(help="Make a spec of a model in another format.", no_args_is_help=True)
exporting = typer.Typer(help="Write a model in another format.", no_args_is_help=True)


@importing.command("hf")
def import_hf(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with a config.json.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the spec into this file.")
    ] = None,
) -> None:
    """Make a spec of a public checkpoint's config.json."""
    from hybridc.checkpoints.hub import import_hf as import_spec
    from hybridc.frontend.document import print_spec

    _write_spec(print_spec(import_spec(folder)), out)


def _write_spec(text: str, out: Path | None) -> None:
    if out is None:
        console.write(text)
    else:
        console.write_file(out, text)
        console.write(f"{out}: written\n", sys.stderr)


@importing.command("nemotron")
def import_nemotron(
    letters: Annotated[
        str, typer.Argument(metavar="LETTERS", help="M Mamba-2, * attention, - mlp, E experts: `M-M*-E`.")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the spec into this file.")
    ] = None,
) -> None:
    """Make a spec of the one-letter string that names Nemotron-H's layers, in the family's usual sizes."""
    from hybridc.checkpoints.hub import import_nemotron as import_spec
    from hybridc.frontend.document import print_spec

    _write_spec(print_spec(import_spec(letters)), out)


@importing.command("gguf")
def import_gguf(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A GGUF file of the llama architecture.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the spec into this file.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Write config, weights and tokenizer into this folder, as published."),
    ] = None,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        typer.Option(help="Format of the weights in the folder; else float32."),
    ] = None,
) -> None:
    """Make a spec, or a checkpoint's folder, of a GGUF file."""
    from hybridc.checkpoints.gguf import gguf_to_hf
    from hybridc.checkpoints.gguf import import_gguf as import_spec
    from hybridc.frontend.document import print_spec

    if dtype is not None and to is None:
        wrong("--dtype is the format of the weights that --to DIR writes")
    text = print_spec(import_spec(file))
    if to is not None:
        gguf_to_hf(file, to, dtype=dtype or "float32")
        console.write(f"{to}: written\n", sys.stderr)
    if out is not None:
        console.write_file(out, text)
        console.write(f"{out}: written\n", sys.stderr)
    elif to is None:
        console.write(text)


@exporting.command("hf")
def export_hf(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A checkpoint's folder, an emitted package, or a spec.")
    ],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write; new or empty.")],
    family: Annotated[
        str, typer.Option(metavar="NAME", help="The model_type to write a spec as, if it is not called by it.")
    ] = "",
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A safetensors file with the weights of a spec or package.")
    ] = None,
) -> None:
    """Write a model as the folder of a public checkpoint, which transformers loads."""
    from hybridc.checkpoints.export import export_folder

    export_folder(source, out, family=family, weights=weights)
    console.write(f"{out}: written\n", sys.stderr)
