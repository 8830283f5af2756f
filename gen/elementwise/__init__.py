"""Elementwise operations, and the sums that norms are made of."""
