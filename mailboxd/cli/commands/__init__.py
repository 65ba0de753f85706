"""One file per verb; each holds a `command`."""
