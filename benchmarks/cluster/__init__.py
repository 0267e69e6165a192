"""Epochs on several nodes that are one cache."""
