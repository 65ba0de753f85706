"""The probes: each takes one look at the world, changes nothing, and says in an exception why it could not."""
