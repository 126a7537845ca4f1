"""Emitted statements compute what the IR says, whatever names the spec gives to values of the stream."""

import pytest
import torch

import hybridc

BODIES = [
    "t = x\n    x += linear(8)\n    x += mlp(3)\n    x += 3.0 * t",
    "t = x\n    x += linear(8)\n    u = x\n    x += mlp(3)\n    x += u * t\n    x += t",
    "x += linear(8)\n    t = x\n    x += linear(8)\n    x += linear(8)\n    x = x + t",
    "t = x\n    x += linear(8)\n    x += linear(8)\n    x = t",
    "t = x0\n    x += linear(8)\n    x += t * x\n    x += x0",
    "a = linear(8)\n    x += a\n    b = x * a\n    x += b\n    x += a | b",
]


def interpret(block, module, x, x0):
    """The block's nodes, one after the other, each value under its own name."""
    values = {"x": x, "x0": x0}
    for node in block.nodes:
        operands = [values[o] for o in node.operands]
        kind = type(node.op).kind
        if kind == "add":
            values[node.name] = operands[0] + operands[1]
        elif kind == "mul":
            values[node.name] = operands[0] * operands[1]
        elif kind == "scale":
            values[node.name] = node.op.factor * operands[0]
        else:
            values[node.name] = module.get_submodule(node.path)(operands[0])
    return values[block.result]


@pytest.mark.parametrize("body", BODIES)
def test_names_of_values_survive_the_stream(body):
    text = f"""model m {{
      block L {{
    {body}
      }}
      embed = embedding(9, 8)
      layers = L
      head = lm_head(9)
    }}"""
    compiled = hybridc.compile(text)
    net = compiled.load()
    block, module = compiled.ir.blocks[0], net.layers[0]
    x, x0 = torch.randn(1, 3, 8), torch.randn(1, 3, 8)
    arguments = (x, x0) if any(a.name == "x0" for a in block.args) else (x,)
    torch.testing.assert_close(module(*arguments, None, {}), interpret(block, module, x, x0))
