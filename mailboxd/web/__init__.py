"""The page: all workspaces of a user in a browser, on loopback (extra `web`).

The fourth entrance to the engine, for people: what is read comes from the store's read-only questions, what is ordered
goes through `byhand` and the engine like a command's. `sessions` says who may come in, `guard` refuses what no browser
of this page would send, `places` which workspaces there are, `reading` what a page shows, `acts` what a form does,
`stream` when to look again, `app` the addresses, `door` the listener.

Everything that is shown is foreign: templates escape, no message becomes HTML, no link comes out of one. It works
without JavaScript; with it, parts of a page are replaced when something was recorded.
"""
