"""Proof and evidence: whether everything is still what was recorded, and what to hand to somebody who asks."""
