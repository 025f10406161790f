"""Layout, layers, imports and the wheel: what keeps the house in order."""

from __future__ import annotations

import ast
import importlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pipesat
from tests.support.loaded import loaded_by
from tests.support.paths import ROOT

HEAVY = {"ortools", "torch", "matplotlib", "numba", "numpy", "networkx", "pydantic"}
FOLDERS = {"pipesat": "pipesat", "solver": "pipesat.solver", "heuristics": "pipesat.heuristics"}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module's import name and file, each once: the links in pipesat/ are not followed."""
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inside = path.relative_to(ROOT / folder).with_suffix("").parts
            if not (folder == "pipesat" and inside[0] in FOLDERS):
                yield ".".join((package, *inside)).removesuffix(".__init__"), path


MODULES = dict(modules())


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports(path: Path, *, at_import_time: bool = False) -> set[str]:
    """Modules that a file imports, anywhere in it or only when it is imported itself."""
    names: set[str] = set()

    def walk(node: ast.AST) -> None:
        if not isinstance(node, ast.stmt | ast.excepthandler | ast.match_case | ast.Module):
            return  # only statements import
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if at_import_time and (inside or typing):
            return
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(parsed(path))
    return names


def within(names: set[str], package: str) -> set[str]:
    return {name for name in names if f"{name}.".startswith(f"{package}.")}


# Layers


def test_all_three_folders_were_found() -> None:
    assert {"pipesat.problem.ops", "pipesat.cli.app", "pipesat.core.atomic"} <= MODULES.keys()
    assert {"pipesat.solver", "pipesat.solver.model.model"} <= MODULES.keys()
    assert {"pipesat.heuristics", "pipesat.heuristics.one_f_one_b"} <= MODULES.keys()


LAYERS = """
child
core kernels record
problem
schedule
bounds check draw layers
heuristics
runtimes solver
compare
advise doctor measure
cli
"""
"""From the bottom up; a package uses those of lower lines only, so there are no circles."""

LEVEL = {name: n for n, line in enumerate(LAYERS.split("\n")) for name in line.split()}


def package_of(module: str) -> str:
    """The package a module lies in; the root itself is ``pipesat``."""
    return module.split(".")[1] if "." in module else "pipesat"


def arrows(module: str) -> set[str]:
    """The other packages that a module uses, under ``TYPE_CHECKING`` and in functions too."""
    ours = within(imports(MODULES[module]), "pipesat")
    return {package_of(name) for name in ours} - {package_of(module)}


def test_nothing_is_looked_up_by_name_but_what_the_root_has() -> None:
    """Methods call what they are made of: editors, type checkers and readers can follow."""
    late = {name for name, path in MODULES.items() if "import_module(" in path.read_text()}
    assert within(late, "pipesat.core") == {"pipesat.core.showing"}


def test_every_model_is_solved_through_one_door() -> None:
    """It validates, guards callbacks and keeps to the clock: pipesat/solver/run/runner.py."""
    made = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("CpSolver", "new_solver")
    }
    assert made == {"pipesat.solver.lanes.runner"}


def test_every_package_has_its_layer() -> None:
    assert {package_of(module) for module in MODULES} == {*LEVEL, "pipesat", "__main__"}


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_downward(module: str) -> None:
    if module not in ("pipesat", "pipesat.__main__"):  # the root's public names are its purpose
        level = LEVEL[package_of(module)]
        assert {other for other in arrows(module) if LEVEL.get(other, 99) >= level} == set()


def module_of(name: str) -> str:
    """The module that an imported name is, or lies in."""
    return name if name in MODULES else module_of(name.rpartition(".")[0])


def test_no_circle_between_modules() -> None:
    """A method may call, in its own room, what is made of its class: that is imported in it."""
    uses = {
        module: {
            module_of(name)
            for name in within(imports(path), "pipesat")
            if package_of(name) != package_of(module) or name in imports(path, at_import_time=True)
        }
        - {module}
        for module, path in MODULES.items()
        if module != "pipesat"
    }
    TopologicalSorter(uses).prepare()  # raises CycleError, with the circle


def test_an_upward_import_would_be_seen() -> None:
    assert "solver" in arrows("pipesat.compare.solve")  # inside a function
    assert "problem" in arrows("pipesat.measure.trace_answer")  # under TYPE_CHECKING
    assert LEVEL["core"] < LEVEL["heuristics"] < LEVEL["solver"] < LEVEL["compare"]


@pytest.mark.parametrize("module", ["schedules", "exports", "hand_written", "result"])
def test_checking_showing_and_exporting_reach_no_search(module: str) -> None:
    reached, coming = set[str](), [f"pipesat.compare.{module}"]
    while coming:
        one = module_of(coming.pop())
        if one not in reached and one != "pipesat":
            reached.add(one)
            coming += within(imports(MODULES[one]), "pipesat")
    assert within(reached, "pipesat.runtimes")
    assert not within(reached, "pipesat.solver")


@pytest.mark.parametrize("module", MODULES)
def test_who_uses_which_library(module: str) -> None:
    names = imports(MODULES[module])
    early = imports(MODULES[module], at_import_time=True)
    if not within({module}, "pipesat.solver"):  # one module of bounds does, where it needs an LP
        assert not within(early if module == "pipesat.bounds.counting" else names, "ortools")
    if not within({module}, "pipesat.measure.processes") and module != "pipesat.record":
        assert not within(early, "torch")
    if not within({module}, "pipesat.draw"):
        assert not within(early, "matplotlib")
    if not within({module}, "pipesat.cli"):
        assert not within(names, "click") | within(names, "rich")
    assert not within(names, "solver") | within(names, "heuristics") | within(names, "tests")


READERS = {
    "parse_problem": {
        "pipesat.problem.problem",
        "pipesat.problem.problem_file",
        "pipesat.problem.making",
        "pipesat.compare.report.study",
    },
    "parse_layers": {"pipesat.layers.layers_file", "pipesat.layers.from_profile"},
    "json.loads": {
        "pipesat.runtimes.frameworks",
        "pipesat.runtimes.reading",
        "pipesat.core.atomic",
        "pipesat.core.folder",
        "pipesat.core.strict_json",
    },
}
"""Who reads documents: files of ours and of others, and entries of files that Python is given."""


@pytest.mark.parametrize("reader", READERS)
def test_documents_are_read_at_the_boundary_alone(reader: str) -> None:
    """A problem that changes is a value that changes: its document is not written to be read."""
    found = {
        name
        for name, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == reader
    }
    assert found == READERS[reader]


def test_no_test_file_imports_from_another() -> None:
    ours = re.compile(
        r"^\s*(?:from|import) tests\b[\w.]*(?: import (?:\([^)]*\)|.*))?", re.MULTILINE
    )
    assert "test_" in ours.findall("import os\nfrom tests.core import (\n    test_ops,\n)\n")[0]
    for path in (ROOT / "tests").rglob("*.py"):
        others = [line for line in ours.findall(path.read_text()) if re.search(r"\btest_", line)]
        assert not others, f"{path}: what test files share is in tests/support"


def test_the_checker_shares_nothing_with_timing_and_model() -> None:
    parts = {
        "pipesat.check.checker",
        "pipesat.check.check_schedule",
        "pipesat.check.check_memory",
        "pipesat.check.check_ops",
    }
    data = {f"pipesat.core.{name}" for name in ("arguments", "arrays", "errors")}
    data |= {f"pipesat.problem.{name}" for name in ("ops", "problem", "stage")}
    data |= {"pipesat.schedule.schedule"}
    for part in parts:
        ours = within(imports(MODULES[part]), "pipesat")
        assert {name.rpartition(".")[0] for name in ours} <= parts | data


# Claims


PERCENT = re.compile(r"\b100(\.0)? \*|\} %(?! [\w(])|value\) / |(?<!/)/ ([\w.]+\.)?value\b(?!')")
CHANGES = re.compile(r"% (shorter|longer|better|worse)")


def test_gaps_percentages_and_changes_are_made_in_one_room() -> None:
    axis = "pipesat.compare.frontier.staircases"  # a scale in percent, and a weight
    for name, path in MODULES.items():
        if within({name}, "pipesat.solver") or within({name}, "pipesat.heuristics"):
            continue
        if name not in {"pipesat.core.claims", axis}:
            source = path.read_text()
            if not re.search(r"100|%|/.*value|value.*/", source, re.DOTALL):
                continue
            tree = ast.parse(source)
            for node in ast.walk(tree):  # docstrings may show formulas
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                    node.value.value = ""
            text = ast.unparse(tree)
            assert not PERCENT.search(text), (name, PERCENT.search(text))
            assert not CHANGES.search(text), (name, CHANGES.search(text))


UPPER = re.compile(r"\b(at most|no more than|gap|up to|at least|less than|below) $")
AFTER = re.compile(r"^( | ms | %)?(at most|at least|or more|or less)\b")
NEAREST = re.compile(r"\b(percent|rounded|float|round)\(|\.\d+[fg]")
A_LIMIT = re.compile(r"\bpercent\([^()]*(gap|excess\()")


def limits_to_the_nearest(source: str) -> list[str]:
    """Texts in which a limit is shown by what rounds to the nearest."""
    found = [match[0] for match in A_LIMIT.finditer(source)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [ast.Constant(""), *node.values, ast.Constant("")]
            for before, part, after in zip(parts, parts[1:], parts[2:], strict=False):
                words = [str(getattr(text, "value", "")) for text in (before, after)]
                limit = UPPER.search(words[0]) or AFTER.search(words[1])
                shown = ast.unparse(ast.JoinedStr([part]))
                if isinstance(part, ast.FormattedValue) and limit and NEAREST.search(shown):
                    found.append(shown.join(words))
    return found


@pytest.mark.parametrize("module", MODULES)
def test_limits_are_rounded_to_their_side(module: str) -> None:
    assert limits_to_the_nearest(MODULES[module].read_text()) == []


def test_a_limit_rounded_to_the_nearest_would_be_seen() -> None:
    for text in ('f"at most {percent(x)} more"', 'f"at least {x:.1f} ms"', "percent(row.gap)"):
        assert len(limits_to_the_nearest(text)) == 1


# Imports


@pytest.mark.parametrize(
    "statement",
    [
        "import pipesat",
        "import pipesat.cli",
        "from pipesat.schedule import result, timing",
        "import sys; sys.argv = ['pipesat', '--help']; import pipesat.cli; pipesat.cli.main()",
        "import sys; sys.argv = ['pipesat', '--version']; import pipesat.cli; pipesat.cli.main()",
    ],
)
def test_what_needs_no_heavy_package_loads_none(statement: str) -> None:
    loaded = loaded_by(statement)
    assert "pipesat" in loaded
    assert loaded & HEAVY == set()


def test_a_commands_help_loads_no_heavy_package_either() -> None:
    run = (
        "import sys; sys.argv = ['pipesat', 'solve', '-h']; import pipesat.cli; pipesat.cli.main()"
    )
    assert loaded_by(run) & HEAVY == set()


def test_the_footprint_test_would_see_a_heavy_package() -> None:
    assert "pydantic" in loaded_by("import pipesat.problem.problem_file")


def test_the_public_names() -> None:
    assert pipesat.__all__ == sorted(set(pipesat.__all__))
    assert set(pipesat.__all__) == set(pipesat._HOMES)
    for name in pipesat.__all__:
        value = getattr(pipesat, name)
        assert value.__name__ == name
        assert value.__module__ == f"pipesat.{pipesat._HOMES[name]}"


def test_a_function_keeps_its_name_where_a_room_has_the_same() -> None:
    rooms = {module.split(".")[1] for module in MODULES if "." in module}
    for name in sorted(rooms & set(pipesat.__all__)):
        importlib.import_module(f"pipesat.{name}")
        assert callable(getattr(pipesat, name)), name


def test_dir_shows_what_is_public() -> None:
    assert set(dir(pipesat)) == {*pipesat.__all__, "__version__"}
    assert re.match(r"\d+\.\d+", pipesat.__version__)


def test_type_checkers_see_the_same_public_names() -> None:
    tree = parsed(MODULES["pipesat"])
    (typing,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(typing.test) == "TYPE_CHECKING"
    shown = {
        alias.name: statement.module
        for statement in typing.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert shown == {name: f"pipesat.{home}" for name, home in pipesat._HOMES.items()}


def test_only_the_command_line_names_its_options() -> None:
    # functions name their parameters, which cli/naming.py turns into options
    option = re.compile(r'where="--')
    rooms = {name: path for name, path in MODULES.items() if not name.startswith("pipesat.cli")}
    assert [name for name, path in rooms.items() if option.search(path.read_text())] == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pipesat.nothing  # noqa: B018


@pytest.mark.parametrize("name", ["solver", "heuristics"])
def test_packages_at_the_root_import_as_pipesats(name: str) -> None:
    module = __import__(f"pipesat.{name}", fromlist=["__file__"])
    assert module.__name__ == f"pipesat.{name}"
    assert Path(module.__file__).resolve() == ROOT / name / "__init__.py"
    assert (ROOT / "pipesat" / name).readlink() == Path("..") / name


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy, so that nothing is left behind in the checkout."""
    source = tmp_path_factory.mktemp("wheel") / "pipesat"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for folder in (*FOLDERS, "examples"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=ignore)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (source / "dist").iterdir()
    return zipfile.ZipFile(path)


@pytest.mark.slow
def test_the_wheels_only_top_level_name_is_pipesat(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"pipesat"}


@pytest.mark.slow
def test_the_wheel_has_every_module(wheel: zipfile.ZipFile) -> None:
    files = {n for n in wheel.namelist() if n.startswith("pipesat/")}
    on_disk = {
        f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for path in MODULES.values()
        if path.is_relative_to(ROOT / folder)
    }
    homes = (ROOT / "pipesat" / "compare" / name for name in ("report", "explore"))
    page = {
        path for home in homes for path in home.iterdir() if path.suffix in (".css", ".html", ".js")
    }
    assert len(page) > 4
    examples = {f"pipesat/examples/{path.name}" for path in (ROOT / "examples").iterdir()}
    assert len(examples) > 15
    report_ = {path.relative_to(ROOT).as_posix() for path in page}
    home = ROOT / "pipesat" / "core" / "schemas"
    schemas = {f"pipesat/core/schemas/{path.name}" for path in home.iterdir()}
    assert len(schemas) > 5
    assert files == on_disk | report_ | examples | schemas | {"pipesat/py.typed"}


@pytest.mark.slow
def test_the_wheel_has_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    (commands,) = [name for name in names if name.endswith("entry_points.txt")]
    assert b"pipesat = pipesat.cli:main" in wheel.read(commands)
    assert any(name.endswith("/LICENSE") for name in names)


def test_no_two_types_have_one_name() -> None:
    """But for a schedule and the one that knows its problem, and a key of two files."""
    names = Counter(
        node.name
        for path in MODULES.values()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} <= {"Schedule", "OffloadModel"}
