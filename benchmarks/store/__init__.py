"""What reading and listing add to what a store can do."""
