"""Ed25519 keys and signatures of messages (docs/security.md). Needs the extra `signing` once there is a key."""
