"""The sampler: what is trained in which order. Its modules need torch."""
