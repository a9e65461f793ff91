"""The shape of the repository: which package may import which, and names that would shadow other modules."""

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "condensery": set(),
    "modeling": {"condensery"},
    "data_synthesis": {"condensery", "modeling"},
    "distill": {"condensery", "modeling"},
    "reconstruct": {"condensery", "modeling"},
    "evaluation": {"condensery", "modeling", "data_synthesis", "distill", "reconstruct"},
}
HEAVY = ("torch", "transformers", "trl", "datasets", "openai", "bm25s", "matplotlib")


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_in_one_direction(package):
    for path in (ROOT / package).rglob("*.py"):
        foreign = (imported_packages(path) & set(MAY_IMPORT)) - MAY_IMPORT[package] - {package}
        assert not foreign, f"{path.relative_to(ROOT)} imports {foreign}"


def test_files_package_knows_nothing_of_ours():
    for path in (ROOT / "condensery" / "files").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "from condensery" not in text.replace("from condensery.files", ""), path


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_module_shadows_another(package):
    """Scripts put their own folder first on sys.path, where `datasets.py` would hide the library."""
    taken = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions())
    taken -= set(MAY_IMPORT)
    modules = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__", "__main__"}
    assert not modules & taken


def test_help_imports_nothing_heavy():
    code = "import sys, condensery.cli as cli; cli.main(['--help']); print(sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "evaluate" in done.stdout
    assert not [name for name in HEAVY if f"'{name}'" in done.stderr]


def test_unknown_step_names_the_steps():
    done = subprocess.run(
        [sys.executable, "-m", "condensery", "distil"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "'distil'" in done.stderr and "sft" in done.stderr
