"""Training, compressing and measuring one candidate, and the executors that do it for many."""
