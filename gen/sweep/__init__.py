"""Sweeps: variants of kernels built, checked against double precision, timed, recorded, reported."""
