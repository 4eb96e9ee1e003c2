"""`omnic plan`, `opt`, `build` and `graph` on a small pipeline."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest

from omnic import manifest, target
from omnic.ir.text import dump, parse
from omnic.passes import DEFAULT
from omnic.runtime.errors import Elsewhere
from omnic.runtime.pipeline import generated
from tests.cli.conftest import Omnic
from tests.cli.test_language import CLEAN, WRONG


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = Path("small.omni")
    file.write_text(CLEAN)
    return file


@pytest.mark.parametrize("command", ["plan", "opt", "build", "graph"])
def test_mistakes_go_to_standard_error(command: str, small: Path, omnic: Omnic) -> None:
    small.write_text(WRONG)
    done = omnic(command, small)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("error[unknown-port]")
    assert not Path("build").exists()


def test_plan_shows_memory_decisions_and_where_they_come_from(small: Path, omnic: Omnic) -> None:
    done = omnic("plan", small)
    assert (done.status, done.err) == (0, "")
    assert "think weights" in done.out
    assert "planner" in done.out
    assert "catalog default" in done.out


def test_a_flag_is_stronger_than_the_file_and_says_so(small: Path, omnic: Omnic) -> None:
    small.write_text(CLEAN.replace("lm.generate", "lm.generate { slots = 3 }"))
    assert re.search(r"slots +3 +stage block", omnic("plan", small).out)
    assert re.search(r"slots +2 +flag", omnic("plan", small, "--set", "think.slots=2").out)


def test_what_does_not_fit_here_names_the_deploy_blocks(
    small: Path, omnic: Omnic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "_memory", lambda: (200 << 20, 200 << 20))
    small.write_text(CLEAN + '\ndeploy h200 {\n  target = gpu("h200")\n}\n')
    assert "`omnic plan` and `build` take `--deploy h200`" in omnic("plan", small).err
    assert "--deploy" not in omnic("plan", small, "--target", "cpu").err
    assert omnic("plan", small, "--deploy", "h200").status == 0


@pytest.mark.parametrize("set", ["think.slotz=2", "thing.slots=2", "slots", "think.slots=", "think.slots=many"])
def test_a_flag_that_sets_nothing_is_an_error(set: str, small: Path, omnic: Omnic) -> None:
    done = omnic("plan", small, "--set", set)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("error[")


def test_plan_as_json(small: Path, omnic: Omnic) -> None:
    plan = json.loads(omnic("plan", small, "--json").out)
    assert "think" in json.dumps(plan)


def test_a_target_that_does_not_exist(small: Path, omnic: Omnic) -> None:
    done = omnic("plan", small, "--target", "gpu:h20")
    assert (done.status, done.out) == (1, "")
    assert "h200" in done.err


def test_a_deploy_block_that_does_not_exist(small: Path, omnic: Omnic) -> None:
    done = omnic("plan", small, "--deploy", "laptop")
    assert (done.status, done.out) == (1, "")
    assert "laptop" in done.err


def test_opt_prints_ir_that_parses(small: Path, omnic: Omnic) -> None:
    done = omnic("opt", small)
    assert done.status == 0
    assert dump(parse(done.out)).strip() == done.out.strip()
    assert "slots = " in done.out


def test_opt_runs_what_it_is_told(small: Path, omnic: Omnic) -> None:
    lowered = omnic("opt", small, "-p", "").out
    sliced = omnic("opt", small, "-p", "slice").out
    assert "slots" not in lowered
    assert "slices" not in lowered
    assert "slices" in sliced
    assert "slots" not in sliced


def test_opt_says_which_passes_others_stand_on(small: Path, omnic: Omnic) -> None:
    done = omnic("opt", small, "-p", "place", "--set", "think.precision=fp32")
    assert done.status == 1
    assert done.err.startswith("omnic: after pass `place`: ")
    assert done.err.endswith(f"all of them, in order, are {', '.join(p.name for p in DEFAULT)}\n")


def test_opt_prints_after_each_pass(small: Path, omnic: Omnic) -> None:
    out = omnic("opt", small, "-p", "slice,stream", "--print-after", "all").out
    assert [line for line in out.splitlines() if line.startswith("// after")] == ["// after slice", "// after stream"]
    assert "// after slice" not in omnic("opt", small, "-p", "slice,stream", "--print-after", "stream").out


@pytest.mark.parametrize(("spec", "says"), [("slise", "slice"), ("place{resurve=0.1}", "reserve"), ("slice,,", "")])
def test_a_pass_that_does_not_exist(spec: str, says: str, small: Path, omnic: Omnic) -> None:
    done = omnic("opt", small, "-p", spec)
    assert (done.status, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1


def test_print_after_a_pass_that_does_not_run(small: Path, omnic: Omnic) -> None:
    done = omnic("opt", small, "-p", "slice", "--print-after", "place")
    assert done.status == 2
    assert "place" in done.err


def test_build_says_what_it_made_and_when_there_was_nothing_to_do(small: Path, omnic: Omnic) -> None:
    assert omnic("build", small) == (0, "build/small: built, small on cpu: chat.completions\n", "")
    assert {p.name for p in Path("build/small").iterdir()} >= {
        "manifest.json",
        "pipeline.py",
        "server.py",
        "omnic.lock",
    }
    assert omnic("build", small).out == "build/small: up to date, small on cpu: chat.completions\n"
    assert omnic("build", small, "-o", "elsewhere").out.startswith("elsewhere: built")


def test_a_build_for_gpus_that_are_not_here_can_be_read_and_not_run(small: Path, omnic: Omnic) -> None:
    built = omnic("build", small, "--target", "gpu:h200*2")
    assert (built.status, built.out) == (0, "build/small: built, small on h200 * 2: chat.completions\n")
    why = "omnic: build/small is planned for h200 * 2, and torch sees "
    for argv in (["serve", "build/small", "--port", "0"], ["run", "build/small", "--in", "messages=hello"]):
        done = omnic(*argv)
        assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
        assert done.err.startswith(why)
        assert "`omnic build small.omni --target cpu -o build/small`" in done.err
    with pytest.raises(Elsewhere, match="h200"):
        asyncio.run(_loaded(Path("build/small")))


async def _loaded(build: Path) -> None:
    async with generated(build, "Small").load():
        pass


def test_a_stale_build_says_the_command_that_mends_it(small: Path, omnic: Omnic) -> None:
    Path("in here").mkdir()
    small = small.rename(Path("in here") / small)
    omnic("build", small, "-o", "out", "--set", "think.slots=2")
    was = Path("out/manifest.json").read_bytes()
    small.write_text(small.read_text() + "# changed\n")
    done = omnic("run", "out", "--in", "messages=hello")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    [command] = re.findall(r"run `(.*)` again", done.err)
    assert omnic(*shlex.split(command)[1:]).out.startswith("out: built")
    assert Path("out/manifest.json").read_bytes() != was
    assert manifest.read(Path("out")).stages[0].how["slots"] == 2


def test_engines_that_would_not_be_made_anyway(small: Path, omnic: Omnic) -> None:
    done = omnic("build", small, "--no-engines")
    assert done.status == 0
    assert "--no-engines changes nothing" in done.err


def test_locked_takes_what_is_recorded_and_refuses_anything_else(small: Path, omnic: Omnic) -> None:
    done = omnic("build", small, "--locked")
    assert (done.status, done.out) == (1, "")
    assert "omnic.lock" in done.err
    omnic("build", small)
    assert omnic("build", small, "--locked").status == 0
    small.write_text(CLEAN + "# changed\n")
    done = omnic("build", small, "--locked")
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "small.omni changed" in done.err


def test_a_directory_of_somebody_else_is_left_alone(small: Path, omnic: Omnic) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("mine")
    done = omnic("build", small, "-o", "mine")
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert [p.name for p in Path("mine").iterdir()] == ["thesis.txt"]


def test_graph_in_each_format(small: Path, omnic: Omnic) -> None:
    picture = omnic("graph", small).out
    assert "think" in {e.text for e in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")}
    assert picture in omnic("graph", small, "--format", "html").out
    assert "flowchart LR" in omnic("graph", small, "--format", "mermaid").out
    assert omnic("graph", small, "-o", "small.svg") == (0, "", "")
    assert Path("small.svg").read_text() == picture


def test_models_and_targets(omnic: Omnic) -> None:
    assert 'random("llama")' in omnic("models").out
    described = omnic("models", 'random("llama")').out
    assert "generate  (generate)" in described
    assert "in   messages: chat<text>" in described
    assert omnic("models", "llama").status == 2
    assert omnic("models", 'pypi("nothing-of-that-name")') == (
        1, "", "omnic: package `nothing-of-that-name` is not installed: `pip install nothing-of-that-name`\n",
    )  # fmt: skip
    assert "gpu:h200" in omnic("targets").out
    assert "nvlink" in omnic("targets", "gpu:h200*2").out
    assert omnic("targets", "gpu:h20") == (2, "", "omnic: unknown GPU `h20`: did you mean `h200`?\n")


# --- where it goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("out", ["a.txt/x", "/proc/x", "n" * 300, "a.txt"])
def test_an_output_that_cannot_be_written(out: str, small: Path, omnic: Omnic) -> None:
    Path("a.txt").touch()
    done = omnic("build", small, "-o", out)
    assert done.status in (1, 2)
    assert done.err.count("\n") == 1
    assert done.err.startswith("omnic: ")


def test_an_output_by_a_way_that_is_not_there(small: Path, omnic: Omnic) -> None:
    assert omnic("build", small, "-o", "gone/../there").status == 0
    assert Path("there/pipeline.py").exists()


def test_a_cache_that_cannot_be_used_only_makes_things_slower(
    small: Path, omnic: Omnic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIC_CACHE", "/proc/nowhere")
    assert omnic("build", small, "-o", "out").status == 0
