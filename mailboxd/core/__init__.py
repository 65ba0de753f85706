"""PURE: what follows from what. No clock, disk, network, randomness or logging, and nothing from outside Python's own
library; time, ids and chance are passed in (`view.Context`). Begin with `lifecycle`."""
