"""How a process speaks to a server, or reads past it."""
