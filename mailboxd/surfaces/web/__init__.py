"""The web page: all workspaces of a user in a browser, on loopback (extra `web`).

It reads through the store's read-only queries and gives orders through the engine, as the commands do. Everything
shown is untrusted: templates escape it, and no message becomes HTML or a link. The page works without JavaScript; with
it, parts of the page are refreshed when something is recorded.
"""
