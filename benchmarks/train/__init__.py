"""Training for real: accuracy and storage reads of every strategy, and the papers' tables beside ours."""
