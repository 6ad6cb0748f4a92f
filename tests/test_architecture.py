"""The import rules of the package, read from its source; see CONTRIBUTING, "Layers"."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "sparsemod"
LAYERS = [  # top to bottom: import only from lower lines, never from the same line
    {"cli", "__main__"},
    {"sparse", "report", "optim"},
    {"crosstest"},
    {"store", "search", "evaluate"},
    {"export"},
    {"train"},
    {"compress"},
    {"measure"},
    {"space", "pareto"},
    {"config"},
    {"candidate"},
    {"errors"},
]
OWNERS = {  # third-party package -> the only units that may import it
    "ax": {"space", "search"},
    "botorch": {"search"},
    "gpytorch": {"search"},
    "ray": {"evaluate"},
    "torch": {
        "space",
        "search",
        "evaluate",
        "train",
        "compress",
        "measure",
        "export",
        "store",
        "sparse",
        "crosstest",
    },
    "torch_pruning": {"compress"},
    "lightning": {"train"},
    "onnx": {"export"},
    "flatbuffers": {"export"},
    "tflite": {"export"},
    "tflite_micro": {"export"},
    "unicorn": {"export"},
    "elftools": {"export"},
    "tensorflow": set(),
    "matplotlib": {"report", "compress", "crosstest"},
    "jinja2": {"report"},
    "typer": {"cli"},
    "pickle": {"evaluate"},
}
RANK = {unit: rank for rank, line in enumerate(LAYERS) for unit in line}
FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def imports(path: Path) -> set[str]:
    """Absolute dotted names of every import in a file, at any depth."""
    package = ("sparsemod", *path.relative_to(ROOT).parent.parts)
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) + 1 - node.level]) if node.level else ""
            stem = ".".join(filter(None, [base, node.module]))
            names |= {f"{stem}.{alias.name}" for alias in node.names}
    return names


def unit(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_file_imports_only_what_its_layer_allows(path):
    here = unit(path)
    assert here in RANK, f"{here} has no layer: add it to LAYERS"
    for name in imports(path):
        head, *rest = name.split(".")
        if head == "sparsemod":
            assert rest[0] in RANK, f"import {name} from the module that defines it"
            assert rest[0] == here or RANK[rest[0]] > RANK[here], f"{here} may not import {name}"
        assert here in OWNERS.get(head, {here}), f"{here} may not import {name}"


def test_no_import_cycles():
    modules = {".".join(("sparsemod", *p.relative_to(ROOT).with_suffix("").parts)): p for p in FILES}
    graph = {
        module: {m for n in imports(path) for m in (n, n.rpartition(".")[0]) if m in modules and m != module}
        for module, path in modules.items()
    }
    TopologicalSorter(graph).prepare()  # a CycleError names the cycle


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_stored_file_can_run_code(path):
    """No eval, exec, pickle or full-power loader: what is read from a results folder is data."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {
                "eval",
                "exec",
                "pickle.load",
                "pickle.loads",
                "yaml.load",
                "yaml.unsafe_load",
            }, f"{path}:{node.lineno} calls {called}"
            if called == "torch.load":
                assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_assert_and_no_bare_except(path):
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Assert), f"{path}:{node.lineno} checks input with assert"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{path}:{node.lineno} has a bare except"
