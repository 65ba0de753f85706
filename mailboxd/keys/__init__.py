"""Ed25519 keys: which message is whose. Needs the extra `signing` as soon as there is a key (docs/security.md).

ed25519    one key: its text, its fingerprint, signing and verifying
ring       where keys lie, and who may read them
trust      what a signature on a message is worth here
"""
