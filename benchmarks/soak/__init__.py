"""A long training while workers, servers and storage fail."""
