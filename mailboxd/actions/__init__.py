"""Side effects: what a person is shown of them, the gate before them, and performing one of them once.

Nothing here decides and nothing here remembers: that is the database's. Whoever calls has committed first.
"""
