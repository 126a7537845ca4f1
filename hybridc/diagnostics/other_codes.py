"""Codes of what is wrong around a spec: HYB4xx to HYB6xx."""

from __future__ import annotations

from hybridc.diagnostics.code import Code

OTHER_CODES: dict[str, Code] = {
    # --- files -----------------------------------------------------------------------------------------------------
    "HYB400": Code(
        "file not found",
        "A spec file or an import does not exist, is no plain file or cannot be read.",
        'import "comon.hyb"',
    ),
    "HYB401": Code(
        "import outside its root",
        "Imports are relative and lie below the folder of the importing file or a folder given with -I. Absolute "
        "paths, "
        "`..` and links that lead out are refused, so that a spec from elsewhere cannot read your files.",
        'import "../secrets.hyb"',
    ),
    "HYB402": Code("import cycle", "Files import each other in a circle.", 'import "this_file.hyb"'),
    "HYB405": Code("not UTF-8", "A spec file is UTF-8 text.", ""),
    "HYB403": Code(
        "folder is not a package", "An output folder exists that hybridc did not write. It is left alone.", ""
    ),
    "HYB404": Code("cannot write", "A file or folder cannot be written.", ""),
    # --- foreign configs and weights -------------------------------------------------------------------------------
    "HYB500": Code(
        "config cannot be read", "A folder has no config.json, or it is not a JSON object of a sensible size."
    ),
    "HYB501": Code("unknown model family", "The config's model_type names a family that cannot be imported."),
    "HYB502": Code(
        "unknown config field",
        "The config has a field that the importer does not know. A field that is overlooked could change what the "
        "model "
        "computes, so it is an error. Fields that change no number, such as token ids, are known.",
    ),
    "HYB503": Code("config value not supported", "The config has a value that the importer cannot honour."),
    "HYB510": Code("tensors missing", "The weight files lack tensors that the model needs. All of them are named."),
    "HYB511": Code(
        "tensors do not fit", "The weight files hold tensors of another shape, or that the model does not have."
    ),
    "HYB512": Code(
        "weights cannot be read",
        "Weights come from safetensors files: model.safetensors, or shards named by model.safetensors.index.json. "
        "Pickled "
        "files are refused, since reading them can run code.",
    ),
    "HYB514": Code(
        "no model of this family",
        "A spec is written back as a public config only if that config, imported again, gives the same model.",
    ),
    "HYB513": Code(
        "no public names", "Only nets that were loaded from a public checkpoint can be written under its names."
    ),
    "HYB520": Code(
        "not a GGUF file",
        "The file does not start as a GGUF file does, is cut off, or its header says what cannot be: lengths beyond "
        "the end of the file, a name that stands twice, an unknown version. Little-endian files of version 2 and 3 are "
        "read.",
    ),
    "HYB521": Code(
        "tokenizer not supported",
        "The tokenizer in the GGUF file is of a kind that cannot be written as a tokenizer.json, or lacks a part. "
        "Byte-level BPE and SentencePiece vocabularies are read.",
    ),
    "HYB522": Code(
        "number format not supported",
        "Tensors of the GGUF file are quantized in a way that the installed package `gguf` cannot turn back into "
        "numbers.",
    ),
    # --- the environment -------------------------------------------------------------------------------------------
    "HYB601": Code("unknown target", "Targets are cpu, cuda:sm80, cuda:sm90 and cuda:sm100.", ""),
    "HYB602": Code("unknown pass", "`--print-after` and `passes` take the names of passes, or `all`.", ""),
    "HYB603": Code(
        "no kernel for a part of an op",
        "On a GPU's target this part of an op runs as plain torch, in many small steps: there is no kernel for it. A "
        "library named by `--with` may have one; `hybridc ops NAME` lists who computes what.",
        "",
    ),
    "HYB605": Code(
        "unknown library",
        "`--with` takes the names of libraries that hybridc has calls for, or `found` for those that are installed.",
        "",
    ),
    "HYB606": Code(
        "nothing computes an op on the target",
        "Neither kernels of hybridc nor a library named by `--with` nor torch computes this part of an op on the "
        "target: an A100 (cuda:sm80) has no tensor cores for FP8, for example. `hybridc ops NAME` lists who computes "
        "what.",
        "",
    ),
    "HYB607": Code(
        "library without use",
        "A library that `--with` names computes no part of the model: the model has none of the parts that it offers, "
        "or the library cannot serve them as they are. `hybridc ops NAME` lists what each library offers.",
    ),
    "HYB608": Code(
        "stage times do not fit the model",
        "`--stage-times` gives milliseconds of forward and backward for each block by its name in the IR, and for "
        "`embed` and `head`: what `python -m hybridc.runtime.parallel.measure PACKAGE` writes.",
    ),
    "HYB610": Code(
        "kernel spills or does not fit",
        "A kernel that the model launches, compiled for the target, needs more registers than a thread has, and spills "
        "the rest to memory; or it needs more shared memory than a block has, and cannot be launched there. "
        "`hybridc report SPEC --target TARGET --kernels` lists all kernels.",
    ),
    "HYB611": Code("kernel does not compile", "Triton refuses a kernel that the model launches, for this target."),
    "HYB612": Code(
        "launches not known without a device",
        "`--emit cubin` runs the emitted module on tensors without numbers to see which kernels it launches. Code that "
        "decides by the numbers in a tensor cannot be run so.",
    ),
    "HYB613": Code("no kernels on this target", "Kernels are compiled for cuda:sm80, cuda:sm90 and cuda:sm100."),
}
