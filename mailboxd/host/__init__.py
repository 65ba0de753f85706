"""What the machine gives to a process: room, descriptors, wake-ups, a supervisor, a loopback, a person."""
