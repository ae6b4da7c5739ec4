"""Imports run one way, and importing the package is cheap; read from the source, not from what happens to be loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import microbench
import plots
import synthetic_models
from microbench import engines

PACKAGES = {p.__name__: Path(p.__path__[0]) for p in (synthetic_models, microbench, plots)}
MAY_IMPORT = {
    "synthetic_models": {"synthetic_models"},
    "microbench": {"synthetic_models", "microbench"},
    "plots": {"synthetic_models", "microbench", "plots"},
}
DRAWS_LATE = {"microbench.report", "microbench.commands.plot", "microbench.commands.trace"}
LOADS_TORCH = {f"microbench.engines.{name}" for name in {"requests", "sglang", *engines.WORK_MODULES.values()}} | {
    "microbench.serving.requests"
}


@dataclass(frozen=True)
class Import:
    """One import: the module it stands in, what it names, and how late it runs."""

    module: str
    line: int
    imported: str
    at_top: bool
    typing_only: bool


def module_name(path: Path, package: str) -> str:
    parts = path.relative_to(PACKAGES[package]).with_suffix("").parts
    return ".".join((package, *(p for p in parts if p != "__init__")))


def imports_of(path: Path, package: str) -> list[Import]:
    found: list[Import] = []
    module = module_name(path, package)
    parent = module if path.name == "__init__.py" else module.rpartition(".")[0]

    def visit(node: ast.AST, at_top: bool, typing_only: bool) -> None:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = parent.split(".")
                base = ".".join([*up[: len(up) - node.level + 1], *([base] if base else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        found.extend(Import(module, node.lineno, n, at_top, typing_only) for n in names)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                visit(child, at_top, True)
            for child in node.orelse:
                visit(child, at_top, typing_only)
            return
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, at_top and not inside, typing_only)

    visit(ast.parse(path.read_text(encoding="utf-8")), True, False)
    return found


IMPORTS = [
    found
    for package, folder in PACKAGES.items()
    for path in sorted(folder.rglob("*.py"))
    for found in imports_of(path, package)
]


def under(name: str, *roots: str) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def shown(found: list[Import]) -> list[str]:
    return sorted({f"{i.module}:{i.line} imports {i.imported}" for i in found})


def test_the_reader_sees_the_imports() -> None:
    assert {i.module.partition(".")[0] for i in IMPORTS} == set(PACKAGES)
    assert any(i.module == "plots.style" and under(i.imported, "matplotlib") and i.at_top for i in IMPORTS)
    assert any(i.module == "microbench.commands.plot" and i.imported == "plots" and not i.at_top for i in IMPORTS)
    assert any(i.imported.startswith("synthetic_models.") and i.module.startswith("synthetic_models.") for i in IMPORTS)


def test_plots_import_microbench_and_microbench_imports_synthetic_models_and_never_back() -> None:
    wrong = [
        i
        for i in IMPORTS
        if under(i.imported, *PACKAGES)
        and not under(i.imported, *MAY_IMPORT[i.module.partition(".")[0]])
        and not (i.module in DRAWS_LATE and under(i.imported, "plots") and not i.at_top)
    ]
    assert shown(wrong) == []


def test_nothing_in_the_product_imports_its_tests() -> None:
    assert shown([i for i in IMPORTS if under(i.imported, "tests", "pytest", "hypothesis")]) == []


def test_schedulers_see_protocols_only() -> None:
    own = ("microbench.schedulers", "microbench.protocols", "microbench.errors", "microbench.trace")
    inside = [i for i in IMPORTS if under(i.module, "microbench.schedulers")]
    wrong = [
        i
        for i in inside
        if under(i.imported, *PACKAGES)
        and i.imported != "microbench"
        and not under(i.imported, *own)
        and not (i.typing_only and under(i.imported, "microbench.devices.spec"))
    ]
    assert inside
    assert shown(wrong) == []


def test_torch_and_cupy_are_imported_late_except_by_the_engines_real_work() -> None:
    loads = [i for i in IMPORTS if under(i.imported, "torch", "cupy") and i.at_top and not i.typing_only]
    assert shown([i for i in loads if i.module not in LOADS_TORCH or under(i.imported, "cupy")]) == []


def test_matplotlib_is_for_plots() -> None:
    assert shown([i for i in IMPORTS if under(i.imported, "matplotlib") and not under(i.module, "plots")]) == []


@pytest.mark.parametrize(
    "statement",
    ["import microbench", "import microbench.cli", "import synthetic_models", "import microbench.schedulers"],
)
def test_importing_the_package_loads_nothing_heavy(statement: str) -> None:
    heavy = "torch", "cupy", "matplotlib", "pandas"
    script = f"{statement}; import sys; print(*(m for m in {heavy!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")
