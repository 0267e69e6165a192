"""What strategies and policies save through a server, and what reporting losses costs it."""
