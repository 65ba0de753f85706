"""The machine around a process: disk space, descriptors, wake-ups, a supervisor, a loopback, a user."""
