"""Generated Triton kernels: groups of elementwise and row-wise operations as data, and what turns them into text."""
