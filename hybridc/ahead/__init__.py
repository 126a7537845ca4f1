"""Kernels ahead of time: which ones an emitted module launches, found without a device, and what they compile to."""
