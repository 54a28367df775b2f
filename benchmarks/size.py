"""Count the code lines of each package: ``python benchmarks/size.py``.

A code line is not blank and not only a comment or a docstring. ``tests/test_layers.py``
compares the counts with a budget for each package.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT),
    *(tokenize.DEDENT, tokenize.ENDMARKER),
}


def count_code_lines(text: str) -> int:
    """Return the number of code lines of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for token in tokens
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):  # a docstring
                lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def count_import_lines(text: str) -> int:
    """Return the number of lines of import statements."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def list_modules() -> list[Path]:
    """Return the modules of ``shrinkfx/`` and ``strategies/``."""
    # rglob does not follow the symlink to strategies/.
    found = [*(ROOT / "shrinkfx").rglob("*.py"), *(ROOT / "strategies").glob("*.py")]
    return sorted(found)


def name_package(module: Path) -> str:
    """Return the package below ``shrinkfx/``; ``top`` for a module directly in it."""
    first, *rest = module.relative_to(ROOT).parts
    if first == "strategies":
        return first
    return rest[0] if len(rest) > 1 else "top"


def count_packages() -> Counter[str]:
    """Return the code lines of each package."""
    found = Counter[str]()
    for module in list_modules():
        found[name_package(module)] += count_code_lines(module.read_text())
    return found


def main() -> None:
    """Print the code lines of each package, and the sum."""
    modules = list_modules()
    numbers = Counter(map(name_package, modules))
    packages = count_packages()
    for name, lines in packages.most_common():
        print(f"{name:14} {numbers[name]:4} modules {lines:7,} code lines")
    total = packages.total()
    imports = sum(count_import_lines(module.read_text()) for module in modules)
    print(f"{'sum':14} {len(modules):4} modules {total:7,} code lines")
    print(f"imports: {imports / total:.1%} of the code lines")


if __name__ == "__main__":
    main()
