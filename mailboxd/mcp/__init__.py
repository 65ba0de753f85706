"""Typed tools for agents: the third entrance to the engine, over the Model Context Protocol (extra `mcp`).

A connection speaks in one role, for one name (`caller`). It is shown the tools of that role and no others, and every
call goes through the engine, which asks the permission matrix again (`core.roles`): what is shown is a courtesy, what
is refused is the rule. `arguments` are the schemas, `tools` the table, `acts` what each does, `serving` the protocol,
`door` the loopback listener with its tokens, `registration` the entries in OpenClaw's configuration.
"""
