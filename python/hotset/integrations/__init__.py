"""Hotset in training frameworks: one module each, imported by name."""
