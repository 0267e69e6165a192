"""Datasets: what a loader asks for samples."""
