"""Imports: what comes in, and what must not."""

import os

import pytest

import hybridc

LIBRARY = "let norm = rmsnorm()\nblock M { x += norm >> mamba2(heads=8, head_dim=8, state=4) }\n"
MAIN = """import "{}"
model m {{
  param dim = 64
  embed = embedding(9)
  layers = M * 2
  head = norm >> lm_head(9)
}}
"""


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "common.hyb").write_text(LIBRARY)
    (tmp_path / "outside.hyb").write_text(LIBRARY)
    return root


def codes(path, **options):
    return [d.code for d in hybridc.check(path, **options).diagnostics]


def main(folder, name):
    path = folder / "main.hyb"
    path.write_text(MAIN.format(name))
    return path


def test_lets_and_blocks_come_in(folder):
    path = main(folder, "lib/common.hyb")
    assert codes(path) == []
    compiled = hybridc.compile(path)
    assert [b.name for b in compiled.ir.blocks] == ["M"]
    # the emitted spec stands alone
    assert hybridc.compile(compiled.source["spec.hyb"]).source == compiled.source


def test_imports_of_imports_and_twice_the_same(folder):
    (folder / "lib" / "norms.hyb").write_text("let norm = rmsnorm()\n")
    (folder / "lib" / "common.hyb").write_text('import "norms.hyb"\n' + LIBRARY.split("\n", 1)[1])
    path = main(folder, "lib/common.hyb")
    path.write_text('import "lib/norms.hyb"\n' + path.read_text())
    assert codes(path) == []


def test_include_folders(folder):
    path = main(folder, "common.hyb")
    assert "HYB400" in codes(path)
    assert codes(path, include=[folder / "lib"]) == []
    assert codes(path.read_text(), include=[folder / "lib"]) == []
    assert "HYB400" in codes(path.read_text())


@pytest.mark.parametrize("name", ["../outside.hyb", "/etc/passwd", "lib/../../outside.hyb", "..\\\\outside.hyb", ""])
def test_no_way_out_of_the_root(folder, name):
    assert "HYB401" in codes(main(folder, name))


def test_no_way_out_through_a_link(folder):
    os.symlink(folder.parent / "outside.hyb", folder / "link.hyb")
    assert "HYB401" in codes(main(folder, "link.hyb"))


def test_a_circle_is_shown(folder):
    (folder / "a.hyb").write_text('import "b.hyb"\nlet norm = rmsnorm()')
    (folder / "b.hyb").write_text('import "a.hyb"\nblock M { x += norm }')
    sink = hybridc.check(main(folder, "a.hyb"))
    circle = next(d for d in sink.diagnostics if d.code == "HYB402")
    assert "a.hyb -> b.hyb -> a.hyb" in circle.label
    assert circle.span.file.endswith("b.hyb")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda p: None, "HYB400"),
        (lambda p: p.mkdir(), "HYB400"),
        (lambda p: p.write_bytes(b"let \xff = 1"), "HYB405"),
        (lambda p: p.write_text("let a = 1\n" * 500_000), "HYB002"),
        (lambda p: p.write_text("let = 3"), "HYB001"),
        (lambda p: os.mkfifo(p), "HYB400"),
    ],
)
def test_files_that_cannot_be_read(folder, make, code):
    make(folder / "x.hyb")
    assert code in codes(main(folder, "x.hyb"))
    assert code in codes(folder / "x.hyb")


def test_names_may_not_be_defined_twice_across_files(folder):
    path = main(folder, "lib/common.hyb")
    path.write_text(path.read_text().replace("embed =", "let norm = layernorm()\n  embed ="))
    assert "HYB103" in codes(path)


def test_names_that_no_file_can_have(folder):
    assert codes(main(folder, "a" * 5000)).count("HYB400") == 1
    os.symlink("two", folder / "one")
    os.symlink("one", folder / "two")
    assert "HYB400" in codes(main(folder, "one"))
    assert codes(folder / "one") == codes(folder / ("x" * 5000)) == ["HYB400"]
    label = next(d.label for d in hybridc.check(main(folder, "a\\nb" + "c" * 500)).diagnostics if d.code == "HYB400")
    assert "\n" not in label and len(label) < 200


def test_a_long_chain_of_imports_is_refused_and_a_shorter_one_read(folder):
    for n in range(400):
        (folder / f"n{n}.hyb").write_text(f'import "n{n + 1}.hyb"\nlet a{n} = 1\n')
    (folder / "n400.hyb").write_text(LIBRARY)
    assert "HYB002" in codes(main(folder, "n0.hyb"))
    assert codes(main(folder, "n360.hyb")) == []


def test_two_files_that_define_one_name(folder):
    (folder / "a.hyb").write_text("let norm = rmsnorm()\n")
    (folder / "b.hyb").write_text("\nlet norm = layernorm()\nblock M { x += norm >> swiglu(8) }")
    path = main(folder, "a.hyb")
    path.write_text('import "b.hyb"\n' + path.read_text())
    twice = next(d for d in hybridc.check(path).diagnostics if d.code == "HYB103")
    assert twice.span.file.endswith("a.hyb") and twice.span.line == 1
    assert [(s.file.rsplit("/")[-1], s.line) for s, _ in twice.related] == [("b.hyb", 2)]


def test_mistakes_of_imported_files_are_shown_with_their_lines(folder):
    from hybridc.diagnostics.render import render_text

    (folder / "lib" / "common.hyb").write_text("let norm = rmsnorm(epz=1)\n" + LIBRARY.split("\n", 1)[1])
    sink = hybridc.check(main(folder, "lib/common.hyb"))
    shown = render_text(sink.diagnostics, sink.sources)
    assert "lib/common.hyb:1:20" in shown and "let norm = rmsnorm(epz=1)" in shown


def test_an_include_folder_that_does_not_exist_is_named(folder):
    path = main(folder, "lib/common.hyb")
    assert codes(path, include=[folder / "nowhere"]) == ["HYB400"]
