"""Effects are performed after their commit; their results are inputs again."""
