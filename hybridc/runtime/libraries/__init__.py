"""Adapters that give libraries' kernels the names and signatures of `hybridc.runtime.ops`, for emitted code to call.

Each module imports its library when it is imported itself, and raises UsageError where that is missing. What a library
cannot compute is known when a model is compiled: `hybridc.ir.backends` has it as data.
"""
