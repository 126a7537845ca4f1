"""Triton kernels that are tuned by hand: one file for each, with the torch function that it must equal beside it.

Every file lists in `VARIANTS` the forms in which its kernels are compiled ahead of time.
"""
