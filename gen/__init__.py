"""Generator of sdgen's micro-kernels.

A micro-kernel is described once, in Python. Its assembly, name, prototype and row in the dispatcher's list follow from
that description. `python -m gen --help` says how to run it.
"""
