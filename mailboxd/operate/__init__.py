"""What an operator does with an installation: setting it up, examining, auditing, exporting and rebuilding it."""
