"""The hub process: it carries mail, jobs and files between the workspaces of this user and the server."""
