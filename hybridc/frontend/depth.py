"""How deeply expressions are nested: later stages walk them by recursion."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast

MAX_NESTING = 100
"""Expressions inside expressions."""


def too_deep(spec: ast.Spec) -> ast.Node | None:
    """The first statement with an expression nested more than MAX_NESTING levels, or None."""
    statements: list[ast.Node] = []
    for member in (*spec.members, *(spec.model.members if spec.model else ())):
        statements += [*member.params, *member.body] if isinstance(member, ast.Block) else [member]
    statements += [*(spec.precision.rules if spec.precision else ()), *(spec.mesh.axes if spec.mesh else ())]
    for statement in statements:
        level: list[Any] = [statement]
        depth = 0
        while level:
            if depth > MAX_NESTING + 1:
                return statement
            depth += 1
            level = [child for node in level for child in _children(node)]
    return None


def _children(node: Any) -> list[Any]:
    out: list[Any] = []
    for value in vars(node).values():
        if isinstance(value, ast.Node):
            out.append(value)
        elif isinstance(value, tuple):
            out += [item for item in value if isinstance(item, ast.Node)]
    return out
