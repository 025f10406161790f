"""The JSON Schemas that are shipped are those of the models that read files."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import importlib.util
import json
import tomllib
from types import ModuleType

import pytest

from pipesat.compare.schedules import schedule_of
from pipesat.problem.problem import Problem
from pipesat.schedule.schedule_file import schedule_bytes
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("schemas", ROOT / "scripts" / "schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PINNED = f"pydantic=={importlib.metadata.version('pydantic')}"


@pytest.mark.skipif(
    PINNED not in (ROOT / "constraints.txt").read_text().splitlines(),
    reason="another pydantic words them otherwise",
)
def test_what_is_shipped_is_generated(script: ModuleType) -> None:
    shipped = importlib.resources.files("pipesat.core") / "schemas"
    names = {path.name for path in shipped.iterdir()}
    assert names == {f"{name}.schema.json" for name in script.MODELS}
    for name in script.MODELS:
        text = (shipped / f"{name}.schema.json").read_text("utf-8")
        assert text == script.schema_of(name), f"{name}: python scripts/schemas.py"
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert "schemas/*.json" in data["package-data"]["pipesat.core"]  # it is in the wheel


def test_the_schemas_take_the_examples_and_refuse_what_reading_does(script: ModuleType) -> None:
    """A validator that shares no code with ours."""
    jsonschema = pytest.importorskip("jsonschema")
    taken = set()
    for path in sorted((ROOT / "examples").glob("*.json")):
        document = json.loads(path.read_text())
        if isinstance(document, dict) and "format" in document:
            name = document["format"].partition("/")[0].removeprefix("pipesat.")
            schema = json.loads(script.schema_of(name))
            jsonschema.validate(document, schema)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(document | {"no such key": 1}, schema)
            taken.add(name)
    assert taken >= {"problem", "layers"}
    problem = Problem.chain(2, 2, F=1, B=1, W=1)
    document = json.loads(schedule_bytes(problem, schedule_of(problem, "1f1b")))
    schema = json.loads(script.schema_of("schedule"))
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | {"devices": [[["0F0", 0, 1.5]]]}, schema)
