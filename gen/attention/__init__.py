"""Attention: scores of panels of queries, and their exponentials."""
