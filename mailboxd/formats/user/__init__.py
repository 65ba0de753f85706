"""What one user keeps for all workspaces: small files of which no agent is to know."""
