"""What all tests share: how hypothesis behaves on a machine that others use too."""

from hypothesis import settings

# a slow neighbour is no failure of ours; laws about time are measured where they are stated
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
