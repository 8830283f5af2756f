"""Attention: scores of panels of queries and their exponentials, and what packs and unpacks for them."""
