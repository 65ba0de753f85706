"""What was ordered is performed after its commit, and what comes of it is an input again."""
