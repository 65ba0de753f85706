"""For commands and pages: how it stands with the hub, questions to other hosts, and decisions there."""
