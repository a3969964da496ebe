"""Names in the documentation and in docstrings exist: modules, members, files, options of pytest,
targets of make.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import re
import shlex
from functools import lru_cache
from pathlib import Path
from typing import Iterator, List, Sequence, Set, Tuple

import pytest

from ipubench.fixtures import command_line
from ipubench.fixtures.runtimes.torch.inference_options import InferenceOptions
from tests.support.harness import ROOT, Outcome, Project, run_pytest

# The changelog also names removed things.
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
OURS = ("bench_inference", "bench_kernels", "bench_training", "docs", "fixtures", "ipubench",
        "models", "plugins", "scripts", "tests")  # fmt: skip
CODE = [path for name in OURS for path in sorted((ROOT / name).rglob("*.py"))]
# Files that a tutorial has the reader write, and one of an example.
WRITTEN_BY_THE_READER = {
    "tests/test_a.py",
    "bench_kernels/bench_attention.py",
    "tests/cases/test_kernel_attention.py",
    "tests/test_text.py",
}


@lru_cache(maxsize=None)
def docstrings(path: Path) -> str:
    """Return a module's docstrings and comments."""
    text = path.read_text(encoding="utf-8")
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    comments = re.findall(r"^\s*#.*", text, re.MULTILINE)
    return "\n".join([*(ast.get_docstring(node) or "" for node in nodes), *comments])


def named(pattern: str, pages: Sequence[Path] = PAGES) -> Iterator[Tuple[str, str]]:
    """Yield (page, match) for each match of a pattern."""
    for page in pages:
        text = docstrings(page) if page in CODE else page.read_text(encoding="utf-8")
        for found in re.findall(pattern, text):
            yield page.name, found


def test_there_are_pages_of_every_part() -> None:
    parts = {page.parent.name for page in PAGES}
    assert {"tutorial", "how-to", "reference", "explanation"} <= parts


def test_each_module_that_a_command_runs_exists() -> None:
    modules = set(named(r"python3? -m ((?:ipubench|scripts)[\w.]+)"))
    assert [m for m in modules if importlib.util.find_spec(m[1]) is None] == []
    assert modules


def test_each_file_of_ours_exists() -> None:
    paths = set(
        named(rf"(?<![\w/.-])((?:{'|'.join(OURS)})/[\w/.-]+\.(?:py|md|yml|json))", [*PAGES, *CODE])
    )
    missing = {name for _, name in paths if not (ROOT / name).exists() and "NAME" not in name}
    assert missing <= WRITTEN_BY_THE_READER
    assert paths


def test_each_module_of_ours_exists_and_has_the_named_member() -> None:
    pattern = r"\bipubench\.((?:bench_\w+|fixtures|models|plugins)(?:\.\w+)+)"
    names = set(named(pattern, [*PAGES, *CODE]))
    missing = [one for one in names if not _exists(one[1].split("."))]
    assert [name for _, name in missing] == ["bench_kernels.bench_attention"]


def _exists(parts: List[str]) -> bool:
    """Return whether a dotted name is a module or a folder, or a word of one."""
    path = ROOT.joinpath(*parts)
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    file = path.parent / "__init__.py" if path.parent.is_dir() else path.parent.with_suffix(".py")
    return file.is_file() and parts[-1] in re.findall(r"\w+", file.read_text(encoding="utf-8"))


def test_each_member_that_a_docstring_names_exists() -> None:
    declared = re.compile(r"^ *(?:async )?(?:def |class |self\.)?(\w+)", re.MULTILINE)
    known = {name for path in CODE for name in declared.findall(path.read_text(encoding="utf-8"))}
    names = set(named(r":(?:class|func|meth|mod|attr):`~?([\w.]+)`", CODE))
    assert [name for name in names if name[1].split(".")[-1] not in known] == []
    assert names


def test_each_target_of_make_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    named_targets = set(named(r"`?make ([a-z0-9-]+)`"))
    assert [target for target in named_targets if target[1] not in targets] == []
    assert named_targets


def test_each_option_of_a_pytest_command_exists(pytestconfig: pytest.Config) -> None:
    known: Set[str] = {
        name.replace("_", "-") for name in (*command_line.NAMES, *vars(pytestconfig.option))
    }
    # Options whose attributes have other names, and options of the two other plugins.
    known |= {"set", "collect-only", "junit-xml", "junitxml", "tx", "dist", "color"}
    for page, command in named(r"(?m)^    (pytest .*?)(?:  #.*|  +[a-z].*)?$"):
        for option in re.findall(r"(?<!\S)--([a-z-]+)", command):
            assert option in known, (page, command)


def test_changelog_and_readme_link_to_pages_that_exist() -> None:
    for page in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (ROOT / Path(target)).exists(), (page, target)


def rows(original: str) -> List[str]:
    """Return the commands that replace a document's lines with this text."""
    page = (ROOT / "docs" / "from-graphcore.md").read_text(encoding="utf-8")
    found = [row for row in page.splitlines() if row.startswith("|") and original in row]
    return [re.findall(r"`(pytest [^`]*)`", row)[0] for row in found]


def selects(project: Project, command: str) -> Outcome:
    """List the cases that a command of the documentation selects."""
    words = shlex.split(command)[1:]
    return run_pytest(ROOT, project.environment, *words, "--collect-only", "-q").assert_code(0)


def test_the_rows_of_published_entries_select_all_of_them(project: Project) -> None:
    (entries,) = rows("the entries of its benchmarks.yml")
    assert selects(project, entries).text.count("-pod4-bs") == 20
    (layers,) = rows("python3 lstm_multi.py")
    names = re.findall(r"\[(.*)\]$", selects(project, layers).text, re.MULTILINE)
    assert names and all("-synthetic" in name for name in names)


def test_a_line_without_a_preset_has_the_original_defaults(project: Project) -> None:
    (image,) = rows("--model resnet18 --device-iteration 1")
    found = selects(project, f"{image} --describe")
    assert found.text.count("::bench_cnn_torch[resnet18-ipu-bs1-real-bps1-") == 1
    for field in dataclasses.fields(InferenceOptions):
        if field.name not in ("name", "system", "mode"):
            found.line(f"  {field.name}={field.default} (")


def test_the_rows_of_logs_give_the_numbers_of_the_text(project: Project) -> None:
    (command,) = rows("`--logs-per-epoch` 2, 10, 1/2, 1/3 and 0")
    outcome = selects(project, command)
    outcome.line("logs_per_epoch=2: 781 weight updates cannot be divided into 2 equal parts; the")
    outcome.line("the closest possible logs_per_epoch is 11")
    assert outcome.text.count("::bench_application[cifar_resnet8-ipu-real-") == 5


#: The programs and networks of the original documents, named as their users would.
NAMES = (
    *("grouped_conv", "gru", "hmc", "lstm", "lstm_multi", "rnn", "dense", "popart_lstm"),
    *("popart_conv", "resnet50-m2000", "resnet50-pod16", "resnext101-m2000", "resnext101-pod16"),
    *("efficientnet-b4-m2000", "efficientnet-b4-pod16", "efficientnet-b4-g16-m2000"),
    *("efficientnet-b4-g16-pod16", "toy_model", "cifar_resnet8", "resnet50_infer_bs16"),
    *("resnet50_16ipus_8k_bn_pipeline", "resnet18", "resnet34", "resnet50", "resnet101"),
    *("resnet152", "resnext50", "resnext101", "mobilenet", "mobilenet-v3-small"),
    *("mobilenet-v3-large", "efficientnet-b0", "efficientnet-b4", "efficientnet-b0-g16-gn"),
    *("efficientnet-b4-g16-gn", "triton and efficientnet-b4", "tensorflow_serving"),
    *(f"resnet50-ipu-bs{size}-synthetic" for size in (1, 4, 16, 32, 64, 90)),
    *(f"resnext101-ipu-bs{size}-synthetic" for size in (1, 2, 4, 8, 16)),
    *(f"efficientnet-b0-ipu-bs{size}-synthetic" for size in (1, 8, 16, 32)),
    *(f"resnet50-m2000-bs{size}" for size in (1, 4, 16, 32, 64, 80)),
    *(f"resnext101-m2000-bs{size}" for size in (1, 2, 4, 8, 16)),
    *(f"efficientnet-b0-m2000-bs{size}" for size in (1, 8, 16, 32)),
)


def test_names_of_the_documents_select_cases_of_an_ipu(project: Project) -> None:
    """Without --sweep; one run for all names reports those that match nothing."""
    words = ["--device=ipu", "--collect-only", "-q", "-k", " or ".join(f"({n})" for n in NAMES)]
    found = run_pytest(ROOT, project.environment, *words).assert_code(0).text.splitlines()
    cases = [line for line in found if "::" in line]
    lacking = [n for n in NAMES if not any(all(w in c for w in n.split(" and ")) for c in cases)]
    assert lacking == []
