"""Emitted modules on a mesh: what ranks send each other, which part of each parameter they have, how they train."""
