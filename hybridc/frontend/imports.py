"""Spec files with what they import, checked to lie below the importing file or an include folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from hybridc.diagnostics import NO_SPAN, Sink, Span
from hybridc.frontend import ast
from hybridc.frontend.parser import parse
from hybridc.frontend.tokens import MAX_LENGTH

MAX_CHAIN = 50
"""Files between a spec and one that it imports."""


def load(path: str | Path, *, include: Sequence[str | Path] = ()) -> tuple[ast.Spec, Sink]:
    """The spec in a file, its imports' lets and blocks in front of its own, and a sink with what was wrong so far."""
    sink = Sink()
    text = _read(Path(path), str(path), NO_SPAN, sink)
    if text is None:
        return ast.Spec(), sink
    spec = parse(text, str(path), sink)
    return _merged(spec, Path(path), include, sink), sink


def load_text(
    text: str, file: str = "<spec>", *, include: Sequence[str | Path] = ()
) -> tuple[ast.Spec, Sink]:  # fmt: skip
    """The spec in a text; imports are looked for in the include folders only."""
    sink = Sink()
    spec = parse(text, file, sink)
    return _merged(spec, None, include, sink), sink


def _merged(spec: ast.Spec, path: Path | None, include: Sequence[str | Path], sink: Sink) -> ast.Spec:
    for folder in include:
        if not os.path.isdir(folder):
            sink.report("HYB400", NO_SPAN, f"there is no folder `{folder}` to look for imports in", "check the name")
    if not spec.imports:
        return spec
    loader = _Loader(tuple(Path(i) for i in include), sink)
    chain = (path.resolve(),) if path else ()
    members = loader.members_of(spec, path, chain)
    return dataclasses.replace(spec, imports=(), members=(*members, *spec.members))


@dataclasses.dataclass
class _Loader:
    """Reads each file once, depth first."""

    include: tuple[Path, ...]
    sink: Sink
    seen: set[Path] = dataclasses.field(default_factory=set)

    def members_of(
        self, spec: ast.Spec, path: Path | None, chain: tuple[Path, ...]
    ) -> tuple[ast.Let | ast.Block, ...]:  # fmt: skip
        out: list[ast.Let | ast.Block] = []
        for item in spec.imports:
            found = self._find(item, path)
            if found is None:
                continue
            if found in chain:
                shown = " -> ".join(p.name for p in (*chain[chain.index(found) :], found))
                self.sink.report("HYB402", item.span, f"this import leads back to itself: {shown}", "break the circle")
                continue
            if found in self.seen:
                continue
            if len(chain) > MAX_CHAIN:
                label = f"more than {MAX_CHAIN} files that import one another"
                self.sink.report("HYB002", item.span, label, "import what is needed directly")
                continue
            self.seen.add(found)
            text = _read(found, item.path, item.span, self.sink)
            if text is None:
                continue
            # spans name the file as the chain of imports reached it
            shown = str(found) if path is None else os.path.join(os.path.dirname(str(path)), item.path)
            inner = parse(text, shown, self.sink)
            out += self.members_of(inner, found, (*chain, found))
            out += inner.members
            if inner.model is not None:
                out += [m for m in inner.model.members if isinstance(m, (ast.Let, ast.Block))]
        return tuple(out)

    def _find(self, item: ast.Import, path: Path | None) -> Path | None:
        """The file that an import names, or None after a report."""
        name, shown = Path(item.path), _shown(item.path)
        if name.is_absolute() or ".." in name.parts or "\\" in item.path or not item.path:
            label = f"`{shown}` leaves the folder of its file"
            self.sink.report("HYB401", item.span, label, "import a file below it, or use -I")
            return None
        roots = [path.parent] if path is not None else []
        for root in (*roots, *self.include):
            try:
                target = (root / name).resolve(strict=True)
                inside = target.is_relative_to(root.resolve())
            except (OSError, RuntimeError, ValueError):
                # not there, or a name too long for a file, or links in a circle
                continue
            if not inside:
                label = f"`{shown}` is a link out of its folder"
                self.sink.report("HYB401", item.span, label, "import a file below it")
                return None
            return target
        where = "the folders given with -I" if path is None else "its folder or those given with -I"
        self.sink.report("HYB400", item.span, f"there is no `{shown}` in {where}", "check the name, or add -I FOLDER")
        return None


def _shown(path: str) -> str:
    """A path on one line and of a readable length."""
    text = "".join(c if c.isprintable() else "?" for c in path)
    return text if len(text) <= 80 else text[:77] + "..."


def _read(path: Path, shown: str, span: Span, sink: Sink) -> str | None:
    """A file's text, or None after a report."""
    shown = _shown(shown)
    try:
        if path.is_dir():
            sink.report("HYB400", span, f"`{shown}` is a folder", "name a spec file")
            return None
        if path.exists() and not path.is_file():
            sink.report("HYB400", span, f"`{shown}` is not a plain file", "name a spec file")
            return None
        if path.stat().st_size > 4 * MAX_LENGTH:
            sink.report("HYB002", span, f"`{shown}` is larger than {4 * MAX_LENGTH} bytes", "split it")
            return None
        data = path.read_bytes()
    except ValueError:
        sink.report("HYB400", span, f"`{shown}` is no name of a file", "check the name")
        return None
    except OSError as error:
        help = "check the name" if isinstance(error, FileNotFoundError) else "check that you may read it"
        sink.report("HYB400", span, f"`{shown}` cannot be read: {error.strerror or error}", help)
        return None
    try:
        return data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        sink.report("HYB405", span, f"`{shown}` is not UTF-8 text (byte {error.start})", "save it as UTF-8")
        return None
