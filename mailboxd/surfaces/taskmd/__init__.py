"""task.md, both ways: the store shown as files, and edits of those files taken as inputs."""
