"""The example workflows: valid YAML with existing commands and options, and they work."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List

import pytest
import yaml
from msgspec import to_builtins

from ipubench.plugins.report.verdicts import verdicts_json
from ipubench.plugins.results.run_facts import RunFacts
from tests.support.baselines import load
from tests.support.harness import ROOT, WITHOUT_OTHERS, Project, SuiteServer, run_command
from tests.support.own_project import git
from tests.support.process_starter import NO_SUITE
from tests.support.reports import FILES as REPORT_FILES
from tests.support.reports import benchmark, report_on, verdict
from tests.support.repository import Repository

# Runs the suite many times, so Python 3.8 skips it (make test38).
pytestmark = pytest.mark.slow

FILES = (
    "github-actions.yml",
    "gitlab-ci.yml",
    "github-against.yml",
    "gitlab-against.yml",
    "github-instructions.yml",
    "github-project.yml",
    "gitlab-project.yml",
)
OF_GITHUB = tuple(name for name in FILES if name.startswith("github"))
COMMAND = re.compile(r"(?:\.venv/bin/python|python3) -m (\S+) (.*)")
PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def scripts(value: Any) -> Iterator[str]:
    """Yield the shell scripts of a workflow: `run` on GitHub, `script` on GitLab."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("run", "script", "before_script"):
                yield from [inner] if isinstance(inner, str) else inner
            else:
                yield from scripts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from scripts(inner)


def workflow(name: str) -> Any:
    return yaml.safe_load((ROOT / "docs" / "ci" / name).read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=None)
def help_of(*words: str) -> str:
    options = ["--help", *(["--help-ipubench"] if words == ("pytest",) else [])]
    found = [run_command(ROOT, os.environ, *words, option) for option in options]
    return "".join(one.assert_code(0).text for one in found)


@pytest.mark.parametrize("name", FILES)
def test_its_commands_have_their_options(name: str) -> None:
    found = [match for text in scripts(workflow(name)) for match in COMMAND.findall(text)]
    assert found
    for module, words in found:
        subcommand = [words.split()[0]] if module == "ipubench.plugins.baseline" else []
        text = help_of(module, *subcommand)
        for option in re.findall(r"(?<!\S)(--[a-z-]+)", words):
            assert re.search(rf"{option}(?![\w-])", text), f"{module} has no {option}"


@pytest.mark.parametrize("name", FILES[:2])
def test_the_report_names_every_shard(name: str) -> None:
    """Running the workflows leaves one of them out."""
    text = str(workflow(name))
    (shards,) = re.findall(r"'(?:shard|SHARD)': \[(.*?)]", text)
    listed = re.findall(r"plugins.report((?: shards/\S+)+)", text)
    assert listed and set(shards.replace("'", "").split(", ")) == {*SHARDS, LEFT_OUT}
    for words in listed:
        found = [re.sub("shards/(report-)?", "", word) for word in words.split()]
        assert sorted(found) == sorted([*SHARDS, LEFT_OUT])


def test_exit_code_6_is_a_warning() -> None:
    for name in OF_GITHUB:
        assert any('"$code" = 6' in text for text in scripts(workflow(name)))
    for name, job in (
        ("gitlab-ci.yml", "gate"),
        ("gitlab-against.yml", "compare with the target"),
        ("gitlab-project.yml", "benchmarks"),
    ):
        assert workflow(name)[job]["allow_failure"] == {"exit_codes": [6]}


@pytest.mark.parametrize("name", OF_GITHUB)
def test_github_runs_no_code_that_may_change_later(name: str) -> None:
    text = (ROOT / "docs" / "ci" / name).read_text(encoding="utf-8")
    used = [line for line in text.splitlines() if "uses:" in line]
    assert used and all(PINNED.search(line) for line in used)
    # A value from others in a script would become part of the script.
    for script in scripts(workflow(name)):
        assert set(re.findall(r"\$\{\{ (.*?) }}", script)) <= {"matrix.shard"}


def test_github_jobs_with_write_access_run_no_code_of_the_change() -> None:
    found, against = map(workflow, ("github-actions.yml", "github-against.yml"))
    assert found["permissions"] == against["permissions"] == {"contents": "read"}
    assert against["jobs"]["compare"]["runs-on"] == "ubuntu-latest"
    assert "secrets." not in str(against)
    jobs = found["jobs"]
    assert all("self-hosted" in jobs[name]["runs-on"] for name in ("measure", "report"))
    writers = {name: job for name, job in jobs.items() if "permissions" in job}
    assert set(writers) == {"comment", "pages"}
    (publish,) = writers["pages"]["steps"]
    assert publish["uses"].startswith("actions/deploy-pages@")
    writer = writers["comment"]
    assert writer["permissions"] == {"pull-requests": "write"}
    assert writer["runs-on"] == "ubuntu-latest"
    download, comment = writer["steps"]
    assert download["uses"].startswith("actions/download-artifact@")
    assert set(comment["env"]) == {"GH_TOKEN", "PR"}
    every = [*jobs.values(), *against["jobs"].values()]
    steps = [step for job in every for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert len(steps) == 4
    assert all(step["with"]["persist-credentials"] is False for step in steps)


def test_a_projects_workflow_comments_only_on_a_regression_and_never_for_a_fork() -> None:
    found = workflow("github-project.yml")
    compare, writer = found["jobs"]["compare"], found["jobs"]["comment"]
    assert found["permissions"] == {"contents": "read"}
    assert found["concurrency"]["cancel-in-progress"] is True
    assert writer["permissions"] == {"pull-requests": "write"} and "permissions" not in compare
    for condition in ("outputs.regressed == 'yes'", "head.repo.full_name == github.repository"):
        assert condition in writer["if"]
    assert not any("checkout" in step.get("uses", "") for step in writer["steps"])
    setup = next(step for step in compare["steps"] if "setup-python" in step.get("uses", ""))
    assert setup["with"]["cache"] == "pip"
    assert any("--gate-time=" in text for text in scripts(compare))
    gitlab = workflow("gitlab-project.yml")
    assert gitlab["benchmarks"]["interruptible"] is True
    assert gitlab["comment"]["variables"]["GIT_STRATEGY"] == "none"


def test_the_example_project_has_this_workflow() -> None:
    copy = ROOT / "examples" / "text" / ".github" / "workflows" / "benchmarks.yml"
    assert copy.read_bytes() == (ROOT / "docs" / "ci" / "github-project.yml").read_bytes()


@pytest.mark.parametrize("regressed", [True, False])
def test_a_projects_workflow_finds_a_regression_in_the_report(
    tmp_path: Path, regressed: bool
) -> None:
    kind, change = ("regressed", -0.2) if regressed else ("pass", 0.0)
    case = benchmark("a")
    run = RunFacts(
        selected=[case.fullname],
        outcomes={case.fullname: "passed"},
        verdicts={case.fullname: verdict(kind, 100.0, change)},
    )
    (tmp_path / "report").mkdir()
    text = verdicts_json(report_on([case], [run]))
    (tmp_path / "report" / "verdicts.json").write_text(text, encoding="utf-8")
    steps = workflow("github-project.yml")["jobs"]["compare"]["steps"]
    (script,) = (step["run"] for step in steps if step.get("id") == "found")
    environment = {**os.environ, "GITHUB_OUTPUT": str(tmp_path / "output")}
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "output").exists() == regressed


#: A stand-in for GitHub's program that records its arguments.
GH = """\
#!/bin/sh
printf '%s\\n' "$@" >> "$COMMENTED"
"""
COMMENT = """\
pr
comment
7
--repo=me/suite
--edit-last
--create-if-none
--body-file=report/summary.md
"""
REASON = "the old result was wrong"
ACCEPT = (
    '.venv/bin/python -m ipubench.plugins.baseline promote ./report/baseline.json "$BASELINE" '
    f'--history="$HISTORY" --accept "*bench_fake*={REASON}"'
)
SHARDS = {"bench_inference": "beta-synthetic", "bench_training": "beta-generated"}
LEFT_OUT = "bench_kernels"  # as good as one of the others, and nothing else
SLOWER = {"IPUBENCH_FAKE_SLOWDOWN": "1.3"}
SYNTHETIC = "bench_fake.py::bench_fake[beta-synthetic]"


class Machine:
    """A self-hosted runner: runs a workflow's steps in a clone and keeps its baseline."""

    def __init__(self, project: Project, name: str) -> None:
        self.project = project
        self.github = name.startswith("github")
        self.text = ""  # the output of the last step
        self.workflow = workflow(name)
        kept = self.workflow["env" if self.github else "variables"]
        self.baseline = project.folder / "kept" / "main.json"
        self.history = project.folder / "kept" / "history"
        assert {"BASELINE", "HISTORY"} <= set(kept)
        python = project.folder / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        SuiteServer.python(python)
        programs = project.folder / "bin"
        programs.mkdir()
        self.commented = project.folder / "commented"
        (programs / "gh").write_text(GH)
        (programs / "gh").chmod(0o755)
        self.environment = {
            **project.environment,
            "BASELINE": str(self.baseline),
            "HISTORY": str(self.history),
            "GITHUB_OUTPUT": str(project.folder / "outputs"),
            "GITHUB_SERVER_URL": "https://example.org",
            "CI_PROJECT_URL": "https://example.org/me/suite",
            "GITHUB_REPOSITORY": "me/suite",
            "PR": "7",
            "COMMENTED": str(self.commented),
            "PATH": f"{programs}{os.pathsep}{project.environment['PATH']}",
        }
        git(self.project.folder, "init", "-q")
        self.commit("the first")

    def commit(self, message: str) -> None:
        git(self.project.folder, "commit", "-q", "--allow-empty", "-m", message)

    def run(self, event: str, slower: str = "") -> int:
        """Run all jobs of an event (pull_request, push); return the last exit code.

        The shard ``slower`` measures code that takes 30% longer.
        """
        folder = self.project.folder
        shutil.rmtree(folder / "shards", ignore_errors=True)
        shutil.rmtree(folder / "report", ignore_errors=True)
        self.codes = {
            shard: self.measure(event, shard, SLOWER if shard == slower else {}) for shard in SHARDS
        }
        return self.report(event)

    def report(self, event: str) -> int:
        """Run the jobs that follow the measurements; return the last exit code."""
        (self.project.folder / "outputs").write_text("")
        self.commented.write_text("")
        code = self.steps(self.scripts_of("report", event), {})
        if self.github and self.is_wanted("comment", event):
            assert self.steps(self.scripts_of("comment", event), {}) == 0, self.text
        return code

    def is_wanted(self, job: str, event: str) -> bool:
        """Return the value of the condition of a job after the report."""
        condition = self.workflow["jobs"][job]["if"].replace("&&", "and")
        outputs = SimpleNamespace(code=self.output("code"))
        names = {
            "always": lambda: True,
            "github": SimpleNamespace(event_name=event),
            "needs": SimpleNamespace(report=SimpleNamespace(outputs=outputs)),
        }
        return bool(eval(condition, names))  # noqa: S307

    def measure(self, event: str, shard: str, env: Dict[str, str]) -> int:
        code = self.steps(self.scripts_of("measure", event), {**env, "SHARD": shard})
        report = self.project.folder / "report"
        if self.github and report.exists():  # as artefacts travel
            shutil.move(str(report), str(self.project.folder / "shards" / f"report-{shard}"))
        return code

    def scripts_of(self, job: str, event: str) -> List[str]:
        """Return the shell scripts of a job for an event, in order."""
        if self.github:
            found = self.workflow["jobs"][job]["steps"]
            wanted = f"github.event_name == '{event}'"
            return [
                step["run"] for step in found if step.get("if", wanted) == wanted and "run" in step
            ]
        names = {
            ("measure", "pull_request"): "gate",
            ("measure", "push"): "measure",
            ("report", "pull_request"): "report of a merge request",
            ("report", "push"): "report of the main branch",
            ("trends", "push"): "pages",
        }
        return ["\n".join(self.workflow[names[job, event]]["script"])]

    def steps(self, texts: List[str], env: Dict[str, str]) -> int:
        """Run steps like a runner: one after the other until one fails."""
        shard = env.get("SHARD", "")
        for text in texts:
            if text == "make setup":
                continue
            selected = f"bench_fake.py --device=fake --budget=0.3 -k {SHARDS.get(shard)}"
            selected += f" {' '.join(WITHOUT_OTHERS)}"
            for old, new in {
                '"$SHARD" -m quick': selected,
                "${{ matrix.shard }} -m quick": selected,
                "--processes=9": "--processes=2",
                f" shards/report-{LEFT_OUT}": "",
                f" shards/{LEFT_OUT}": "",
            }.items():
                text = text.replace(old, new)
            assert "${{" not in text, text
            (self.project.folder / "shards").mkdir(exist_ok=True)
            answer = subprocess.run(
                ["bash", "-e", "-c", text],
                cwd=str(self.project.folder),
                env={**self.environment, **env, "CODE": self.output("code")},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            self.text = answer.stdout.decode()
            assert "Traceback" not in self.text, self.text
            if answer.returncode:
                return answer.returncode
        return 0

    def output(self, name: str) -> str:
        path = self.project.folder / "outputs"
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.split("=", 1) for line in lines).get(name, "")

    def summary(self) -> str:
        return (self.project.folder / "report" / "summary.md").read_text(encoding="utf-8")

    def entry(self) -> Dict[str, Any]:
        plain: Dict[str, Any] = to_builtins(load(self.baseline)[SYNTHETIC].record)
        return plain


@pytest.mark.nightly
def test_a_workflow_from_the_first_push_to_an_accepted_slow_down(project: Project) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    machine = Machine(project, "github-actions.yml")
    # The first push: there is no baseline yet, so all cases are new.
    assert machine.run("push") == 0, machine.text
    first = machine.entry()
    assert len(load(machine.baseline)) == 2 and len(list(machine.history.glob("*/*.json"))) == 1
    # A slower pull request fails, and its summary becomes a comment.
    assert machine.run("pull_request", "bench_inference") == 1
    assert list(machine.codes.values()) == [1, 0]
    assert machine.commented.read_text() == COMMENT
    summary = machine.summary()
    assert summary.startswith("**🔴 2 cases: 1 regressed, 1 pass")
    assert "Where the time" in summary and machine.entry() == first
    # It is merged all the same: main is not promoted, but the history has the measurements.
    machine.commit("a slower change")
    assert machine.run("push", "bench_inference") == 4
    assert machine.commented.read_text() == "" and machine.entry() == first
    assert len(list(machine.history.glob("*/*.json"))) == 2
    # Until a person accepts it, with the report of that run.
    assert machine.steps([ACCEPT], {}) == 0, machine.text
    after = machine.entry()
    assert after["throughput"]["median"] < 0.9 * first["throughput"]["median"]
    assert [one["reason"] for one in after["accepted"]] == [REASON]
    assert machine.steps(machine.scripts_of("trends", "push"), {}) == 0, machine.text
    (page,) = (project.folder / "trends").glob("case-*beta-synthetic*.html")
    assert f"accepted: {REASON}" in page.read_text(encoding="utf-8")


@pytest.mark.nightly
def test_a_workflow_with_a_killed_shard_ends_red(project: Project) -> None:
    pytest.importorskip("jinja2", reason="pip install jinja2")
    machine = Machine(project, "gitlab-ci.yml")
    # The merge request that adds the workflow has nothing to compare with.
    assert machine.measure("pull_request", "bench_inference", {}) == 0, machine.text
    assert machine.run("push") == 0, machine.text
    bench = project.folder / "bench_fake.py"
    before = 'if config.trouble == "error":'
    kill = 'if "beta-generated" in str(meter.case): os.kill(os.getpid(), signal.SIGKILL)\n    '
    bench.write_text(bench.read_text().replace(before, kill + before))
    assert machine.run("pull_request") == 1
    assert machine.codes["bench_training"] in (137, -9)  # as bash and Python report it
    summary = machine.summary()
    assert "1 not run, 1 pass" in summary and "was killed" in summary
    # On main the other cases are promoted, and the job is red.
    assert machine.run("push") == 1
    assert "1 case of" in machine.text and len(load(machine.baseline)) == 2


@pytest.mark.nightly
def test_a_hosted_runner_fails_a_change_that_slows_a_case(repository: Repository) -> None:
    """In the checkout of a pull request, whose base is only a branch of the remote."""
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.git("checkout", "-q", "-b", "change")
    repository.git("branch", "-q", "-D", "main")
    repository.slow_down(1.25)
    repository.commit("change")
    SuiteServer.python(repository.folder / "python", NO_SUITE)
    (gate,) = [one for one in scripts(workflow("github-against.yml")) if "--against=" in one]
    few = f"{' '.join(WITHOUT_OTHERS)} --device=fake -k beta-synthetic --gate-cap=3"
    text = gate.replace("${{ matrix.shard }} -m quick", f"bench_fake.py {few}")
    answer = subprocess.run(
        ["bash", "-e", "-c", text.replace(".venv/bin/python", "./python")],
        cwd=str(repository.folder),
        env={**repository.environment, "BASE": "main"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert answer.returncode == 1, answer.stdout.decode()
    folder = repository.folder / "report"
    assert "regressed" in (folder / "summary.md").read_text() and list(folder.glob("run-*.jsonl"))


def test_the_page_about_reports_names_every_file_of_one() -> None:
    text = (ROOT / "docs" / "how-to" / "reports.md").read_text(encoding="utf-8")
    names = {*REPORT_FILES, "junit.xml", *FILES[:2]}
    assert [name for name in names if name not in text] == []
