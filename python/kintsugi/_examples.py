"""The small programs that show each reason for a graph break, before and after its fix: docs/breaks/examples, installed with the package."""

import ast
import pathlib

_HERE = pathlib.Path(__file__).resolve().parent
FOLDERS = _HERE / "break_examples", _HERE.parent.parent / "docs/breaks/examples"


def parts(name):
    """(code that breaks, code that does not) of NAME.py; None where there is no such file."""
    path = next((path for path in (folder / f"{name}.py" for folder in FOLDERS) if path.exists()), None)
    if path is None:
        return None
    text = path.read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    # What the example's own test needs is left out: the docstring, the import of support, the call at the end.
    kept = [node for node in tree.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) and not isinstance(node, ast.If)
            and not (isinstance(node, ast.ImportFrom) and node.module == "support")]
    source = {node: "\n".join(lines[min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) - 1:node.end_lineno]) for node in kept}
    fixed = [node for node in kept if getattr(node, "name", "").lower().startswith("fixed")]
    shown = [source[node] for node in kept if node not in fixed]
    return _joined(shown), _joined([source[node] for node in fixed])


def _joined(pieces):
    text = ""
    for part in pieces:
        simple = "\n" not in part
        text += ("" if not text else "\n" if simple and text.splitlines()[-1].startswith(("import", "from")) else "\n\n") + part
    return text
