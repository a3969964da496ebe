"""The installed package and the checkout: one importable name and no side effects."""

from __future__ import annotations

import email
import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Dict, List, Set, Tuple
from unittest.mock import Mock

import pytest

from ipubench import plugins
from ipubench.fixtures.machine.packages import version_of
from scripts import install
from tests.support.harness import ROOT, WITHOUT_OTHERS, Outcome
from tests.support.reader import DOCS

TOP_LEVEL = ("plugins", "fixtures", "models", "bench_kernels", "bench_training", "bench_inference")
# Files besides Python that a wheel needs: the module next to each reads it at run time.
DATA_FILES = {
    "ipubench/py.typed",
    "ipubench/bench_inference/configs.yml",
    "ipubench/bench_inference/tensorflow.yml",
    "ipubench/bench_inference/triton.yml",
    "ipubench/bench_training/application.yml",
    "ipubench/bench_training/configs.yml",
    "ipubench/plugins/web/page.html",
}
COLLECT = """\
import collections, os, sys
import pytest
code = pytest.main(["--collect-only", "-q", "--sweep", "-p", "no:cacheprovider"])
names = collections.defaultdict(list)
for name, module in list(sys.modules.items()):
    path = os.path.realpath(getattr(module, "__file__", None) or "")
    if path.startswith(os.getcwd() + os.sep) and "site-packages" not in path:
        names[path].append(name)
assert code == 0 and names, code
for path, several in names.items():
    if len(several) > 1:
        print("TWICE", os.path.relpath(path), *sorted(several))
heavy = {"torch", "tensorflow", "torchvision", "keras", "openvino", "PIL", "numpy"}
print("HEAVY", *sorted(heavy & set(sys.modules)))
"""


def copy_of_the_project(folder: Path) -> Path:
    """Return a copy of a checkout's files, keeping links."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(words, cwd=ROOT).decode().split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def collecting(folder: Path, program: str) -> List[str]:
    """Return the lines printed by a program that can import only from a folder."""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    text = answer.stdout.decode(errors="replace")
    assert answer.returncode == 0, text
    return text.splitlines()


def test_collecting_loads_no_module_under_two_names_and_no_framework() -> None:
    lines = collecting(ROOT, COLLECT)
    assert len([line for line in lines if "::bench_" in line]) > 100
    assert lines[-1] == "HEAVY"
    # pytest imports a bench file by its folder, which is an empty package.
    allowed = {f"TWICE {name}/__init__.py {name} ipubench.{name}" for name in TOP_LEVEL}
    assert {line for line in lines if line.startswith("TWICE")} <= allowed


def test_the_extra_for_the_poplar_sdk_fits_its_tensorflow() -> None:
    """TensorFlow 2.6 needs protobuf >= 3.9.2, < 3.20; onnx 1.13 and later need a newer one.

    It also needs typing_extensions < 3.11; exceptiongroup 1.3 and later need a newer one.
    """
    requirements = pytest.importorskip("packaging.requirements", reason="comes with pytest")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extra,) = re.findall(r"^ipu = \[$(.*?)^\]$", text, re.MULTILINE | re.DOTALL)
    found = {}
    for word in re.findall('"(.*)"', extra):
        requirement = requirements.Requirement(word)
        found[requirement.name] = requirement.specifier
    assert "3.19.6" in found["protobuf"] and "3.9.1" not in found["protobuf"]
    assert "3.20.0" not in found["protobuf"]
    assert "1.12.0" in found["onnx"] and "1.13.0" not in found["onnx"]
    assert "1.2.2" in found["exceptiongroup"] and "1.3.0" not in found["exceptiongroup"]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a release's uploads: the sdist, and the wheel built from it."""
    for tool in ("build.env", "hatchling"):
        pytest.importorskip(tool, reason="make setup installs what builds the project")
    return built_from(copy_of_the_project(tmp_path_factory.mktemp("release")))


def built_from(source: Path) -> Path:
    """Return the folder with the sdist of a checkout, and the wheel built from it."""
    build = [sys.executable, "-m", "build", "--no-isolation"]
    own = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(build, cwd=source, env=own, stdout=subprocess.DEVNULL, check=True, timeout=120)
    return source / "dist"


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (found,) = distributions.glob("ipubench-*.whl")
    return found


@pytest.mark.slow
@pytest.mark.entry_point
def test_an_index_would_accept_the_uploads_of_a_release(distributions: Path) -> None:
    pytest.importorskip("twine", reason="needs twine: make setup installs it")
    files = sorted(map(str, distributions.iterdir()))
    assert len(files) == 2
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], check=True)


@pytest.mark.slow
@pytest.mark.entry_point
def test_the_wheel_holds_one_package_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"ipubench"}
    assert set(names) >= DATA_FILES
    modules = {name for name in names if name.endswith(".py")}
    ours = {
        f"ipubench/{path.relative_to(ROOT)}"
        for name in TOP_LEVEL
        for path in (ROOT / name).rglob("*.py")
    }
    assert modules == ours | {"ipubench/__init__.py", "ipubench/__main__.py"}


@pytest.mark.slow
@pytest.mark.entry_point
def test_an_installed_package_changes_nothing_in_other_projects(
    wheel: Path, tmp_path: Path
) -> None:
    site, project = tmp_path / "site", tmp_path / "project"
    zipfile.ZipFile(wheel).extractall(site)  # noqa: S202 - our own
    (project / "plugins").mkdir(parents=True)
    (project / "plugins" / "__init__.py").write_text("NAME = 'theirs'\n")
    (project / "test_theirs.py").write_text(
        "import sys\nimport plugins\n\n\ndef test_theirs():\n"
        "    assert plugins.NAME == 'theirs'\n"
        "    assert not [name for name in sys.modules if name.startswith('ipubench')]\n"
    )
    program = (
        f"import sys; sys.path.insert(1, {str(site)!r}); import pytest; "
        "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider']))"
    )
    assert "1 passed" in collecting(project, program)[-1]


def environment_with(wheel: Path, folder: Path) -> Path:
    """Return the programs of an environment with the wheel and our installed packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    programs = folder / "bin"
    python = str(programs / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    # In a folder with this name .pth files are ignored, such as our editable installation's.
    (site / "needed.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith(site.name))
    )
    (programs / "pytest").write_text(
        f"#!{python}\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
    )
    (programs / "pytest").chmod(0o755)
    return programs


@pytest.mark.slow
@pytest.mark.entry_point
def test_the_metadata_names_the_licence_as_spdx_and_the_pythons(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (place,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        fields = email.message_from_bytes(archive.read(place))
    assert fields["Metadata-Version"] == "2.4"  # the first with this field
    assert fields["License-Expression"] == "MIT" and fields["License-File"] == "LICENSE"
    classifiers = fields.get_all("Classifier") or []
    pythons = {one.rpartition(" ")[2] for one in classifiers if "Python :: 3." in one}
    assert pythons == {f"3.{minor}" for minor in range(8, 15)}
    assert not [one for one in classifiers if one.startswith("License ::")]
    assert fields["Keywords"]


@pytest.mark.slow
@pytest.mark.entry_point
def test_the_sdist_holds_the_documentation_and_the_changes(distributions: Path) -> None:
    (found,) = distributions.glob("ipubench-*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md")}
    assert names >= pages | {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md"}
    assert names >= DATA_FILES | {"docs/ci/github-actions.yml", "examples/text/wordcount.py"}


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.entry_point
def test_equal_sources_and_a_fixed_moment_make_equal_files(
    distributions: Path, tmp_path: Path
) -> None:
    source = copy_of_the_project(tmp_path)
    os.utime(source / "ipubench" / "__init__.py", (1, 1))
    first, second = (
        {path.name: path.read_bytes() for path in folder.iterdir()}
        for folder in (distributions, built_from(source))
    )
    assert len(first) == 2 and first == second


@pytest.mark.nightly
def test_the_third_tutorial_works_with_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    programs = environment_with(wheel, tmp_path / "environment")
    project = tmp_path / "text"
    page = (DOCS / "tutorial" / "gate-in-ci.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    ((?:cp|cd|git|pytest|ipubench-baseline) .*)$", page, re.MULTILINE)
    own = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": "2",
        **{"GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "A"},
        **{"GIT_CONFIG_KEY_1": "user.email", "GIT_CONFIG_VALUE_1": "a@example.org"},
        "IPUBENCH_LEASE_DIR": str(tmp_path / "leases"),
        "IPUBENCH_CACHE_DIR": str(tmp_path / "cache"),
        "PYTEST_ADDOPTS": " ".join(WITHOUT_OTHERS),
    }
    own.pop("PYTHONDONTWRITEBYTECODE", None)  # each module is compiled once

    def run(line: str, *more: str) -> Outcome:
        answer = subprocess.run(
            [*shlex.split(line), *more],
            cwd=project,
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        return Outcome(answer.returncode, answer.stdout.decode(errors="replace"))

    def git(line: str) -> None:
        assert line.startswith("git ")
        run(line).assert_code(0)

    copy, enter, init, add, commit, measure, switch, change, against, *later = lines
    assert (copy, enter) == ("cp -r examples/text ../text", "cd ../text")
    shutil.copytree(ROOT / "examples" / "text", project, ignore=shutil.ignore_patterns("results"))
    for line in (init, add, commit):
        git(line)
    assert "5 passed" in run("pytest --budget=0.05 --sweep").assert_code(0).text
    run(measure).assert_code(0).line("  text-lines1000-generated ")

    (slower,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = (project / "wordcount.py").read_text()
    start = code.index("    return collections.Counter(")
    (project / "wordcount.py").write_text(code[:start] + slower)
    git(switch)
    git(change)
    compared = run(against, "--gate-cap=6")  # enough, even next to other tests
    assert re.search(r"\(gate 5\.0%\): 1 (regressed|inconclusive)", compared.text), compared.text
    assert "alternating processes" not in compared.text

    main, save, back, gate, accept = later
    git(main)
    # Next to other tests most processes are disturbed.
    run(save, "--processes=3", "--keep-disturbed").assert_code(0).line(
        "baseline with 1 case written to "
    )
    git(back)
    judged = run(gate, "--gate-cap=3")
    assert re.search(r"\(gate 5\.0%\): 1 (regressed|inconclusive|pass)", judged.text), judged.text
    assert "drawCharts()" in (project / "out" / "report.html").read_text(encoding="utf-8")
    journal = max((project / "results").glob("run-*.jsonl"), key=lambda path: path.stat().st_mtime)
    run(accept.replace("run-TIME-PROCESS.jsonl", journal.name)).assert_code(0)


def test_the_public_names_exist_and_are_imported_on_first_use() -> None:
    import ipubench
    from ipubench.fixtures.case import cases, options
    from ipubench.fixtures.data import provider
    from ipubench.fixtures.runtimes import public, step
    from ipubench.plugins.baseline.format import BaselineError
    from ipubench.plugins.report import load

    found = [getattr(ipubench, name) for name in ipubench.__all__]
    assert found == [
        cases.NAMED,
        BaselineError,
        options.CaseConfig,
        provider.Data,
        public.Meter,
        public.PyTorch,
        step.ReferenceJobs,
        step.Step,
        cases.Sweep,
        public.TensorFlow,
        cases.cases,
        load.load,
        options.option,
    ]
    with pytest.raises(AttributeError, match="no attribute 'case'"):
        ipubench.case  # noqa: B018
    lines = collecting(ROOT, "import sys, ipubench; print('pytest' in sys.modules)")
    assert lines == ["False"]


class FakePrograms:
    """pip and uv: the requests to each, and which of them fail."""

    def __init__(self, *failing: str, configuration: str = "") -> None:
        self.failing, self.configuration = failing, configuration
        self.asked: List[str] = []
        self.variables: Dict[str, str] = {}

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        line = " ".join([words[2], *(Path(word).name or word for word in words[3:])])
        if line == "pip config list":
            return subprocess.CompletedProcess(words, 0, self.configuration)
        self.asked.append(line)
        self.variables.update(variables)
        failed = any(re.search(f"^{pattern}", line) for pattern in self.failing)
        said = "Resolved 2 packages\nerror: no such host\n" if failed else ""
        return subprocess.CompletedProcess(words, int(failed), said)

    def pip(self, *words: str) -> None:
        """Like install.pip, which exits if pip fails."""
        if self.run(sys.executable, "-m", "pip", "install", *words).returncode:
            raise SystemExit(1)

    def installed(self) -> List[str]:
        """Return which program installed which file, with `.` for the project."""
        return [
            f"{line.split()[0]} {line.split()[-1]}" for line in self.asked if " install -" in line
        ]


def set_up(
    monkeypatch: pytest.MonkeyPatch,
    programs: FakePrograms,
    found: Set[str],
    version: Tuple[int, int, int] = (3, 11, 7),
) -> None:
    """Run the installer with these programs, in an environment with these packages."""
    monkeypatch.setattr(install, "run", programs.run)
    monkeypatch.setattr(install, "pip", programs.pip)
    monkeypatch.setattr(install, "is_installed", lambda name: name in found)
    monkeypatch.setattr(install, "needs_cuda", lambda: "torch" in found)
    monkeypatch.setattr(install, "remove_unused", lambda: None)
    monkeypatch.setattr(install, "compile_what_is_imported", lambda: None)
    monkeypatch.setattr(sys, "argv", ["install.py", "constraints/py311.txt"])
    monkeypatch.setattr(sys, "version_info", version)
    install.main()


def test_uv_installs_and_pip_only_fetches_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = FakePrograms()
    set_up(monkeypatch, programs, set())
    assert programs.installed() == [
        "pip uv.txt",
        "uv cpu.txt",
        "uv py311.txt",  # the build tools
        "uv py311.txt",
        "uv .",
    ]
    assert programs.asked[-1] == "pip uninstall --yes uv"
    hashed = [line for line in programs.asked if line.endswith(".txt")]
    assert len(hashed) == 4 and all("--require-hashes --no-deps" in line for line in hashed)
    built = [line for line in programs.installed() if not line.endswith("uv.txt")]
    isolated = [line for line in programs.asked if "--no-build-isolation" not in line]
    assert len(built) == 4 and isolated == [programs.asked[-1]]
    assert capsys.readouterr().out.splitlines() == [
        f"installing {name}"
        for name in ("uv.txt", "cpu.txt", "py311.txt", "py311.txt", "this project")
    ]


def test_a_program_that_installs_shows_what_it_downloads(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = ["Resolved 2 packages", "Downloading numpy (16.1MiB)", "  Downloading x-1.0.whl"]
    answer = install.run(sys.executable, "-c", f"print({chr(10).join(lines)!r})")
    assert answer.stdout.splitlines() == lines
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == [
        line.strip() for line in lines[1:]
    ]


def test_a_python_that_no_pinned_framework_supports_gets_other_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    programs = FakePrograms()
    with pytest.raises(SystemExit, match=r"3\.8 .*PYTHON=.*\[suite,ipu\]"):
        set_up(monkeypatch, programs, set(), version=(3, 8, 20))
    assert programs.asked == []


@pytest.mark.parametrize(
    ("failing", "by_pip"),
    [
        ("pip install .*uv.txt", ["cpu.txt", "py311.txt", "py311.txt", "."]),
        ("uv .*py311.txt", ["py311.txt", "py311.txt", "."]),
        ("uv .*editable", ["."]),
    ],
)
def test_pip_takes_over_at_uvs_first_failure_and_one_line_explains_why(
    failing: str,
    by_pip: List[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    programs = FakePrograms(failing)
    set_up(monkeypatch, programs, set())
    assert [line for line in programs.installed() if line.startswith("pip")] == [
        "pip uv.txt",
        *(f"pip {name}" for name in by_pip),
    ]
    shown = capsys.readouterr().out.splitlines()
    (line,) = [line for line in shown if not line.startswith("installing ")]
    assert line.startswith("pip ") and line.endswith(": no such host")


def test_uv_gets_the_settings_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = (
        "global.find-links='/elsewhere'\n"
        "global.extra-index-url='file:///one\\nfile:///two'\n"
        "install.find-links='/wheels /more'\n"
        "freeze.timeout='1'\n"
        ":env:.cert='/certificates.pem'\n"
    )
    monkeypatch.setattr(install, "run", FakePrograms(configuration=configuration).run)
    assert install.uv_settings() == {
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INDEX": "file:///one file:///two",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": "/certificates.pem",
    }


def test_the_version_of_a_package_is_that_of_its_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    head, text = "Metadata-Version: 2.1\nName: {}\n", "\n\nVersion: 9\n"  # as described
    for place, lines in (
        ("tensorflow_cpu-2.21.0.dist-info/METADATA", f"{head}Version: 2.21.0{text}"),
        ("torch-2.13.0+cpu.dist-info/METADATA", f"{head}Version: 2.13.0+cpu{text}"),
        ("old-1.0.egg-info/PKG-INFO", f"{head}Version: 1.0{text}"),
    ):
        file = tmp_path / place
        file.parent.mkdir()
        file.write_text(lines.format(re.split("-[0-9]", place)[0]))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert version_of("tensorflow") == version_of("TensorFlow") == "2.21.0"
    assert version_of("torch") == "2.13.0+cpu"
    assert version_of("old") == "1.0"
    assert version_of("poptorch") == ""


CONSTRAINTS = sorted((ROOT / "constraints").glob("*.txt"))


@pytest.mark.parametrize("path", CONSTRAINTS, ids=lambda path: str(path.name))
def test_every_pinned_package_has_hashes(path: Path) -> None:
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    assert first.startswith("# For Python 3.")
    entries = re.split(r"\n(?=\S)", "\n".join(lines))
    for entry in entries:
        assert re.match(r"[A-Za-z0-9_.-]+==[^\s;]+", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}(\s|$)", entry), entry


def test_packages_in_pyproject_are_pinned() -> None:
    pinned = {
        re.split("==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints" / "py311.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = text[text.index("dependencies = [") : text.index("[project.scripts]")]
    names = {
        name.lower().replace("_", "-")
        for name in re.findall(r'"([A-Za-z0-9_.-]+)(?:\[\w+\])?[><=;"]', wanted)
    }
    # `make setup` installs neither the extras datasets and energy nor what only IPU machines need.
    apart = {"tensorflow-datasets", "importlib-resources", "nvidia-ml-py", "exceptiongroup"}
    assert names - pinned <= apart
    assert {"torch", "tensorflow", "pytest", "ruff"} <= names


def test_a_python_without_a_required_package_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example, if the environment of `make setup` is not activated."""
    manager = pytest.PytestPluginManager()
    monkeypatch.setitem(sys.modules, "ipubench.plugins.run.journal", None)
    with pytest.raises(ModuleNotFoundError):
        plugins._register(manager, "plugins.run.journal")
    missing = ModuleNotFoundError("No module named 'jinja2'", name="jinja2")
    monkeypatch.setattr(importlib, "import_module", Mock(side_effect=missing))
    with pytest.raises(pytest.UsageError, match=r"no jinja2"):
        plugins._register(manager, "plugins.run.journal")
