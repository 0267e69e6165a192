"""How fast samples that are in memory reach a reader, beside what else could have them in memory."""
