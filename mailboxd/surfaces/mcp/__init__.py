"""Typed tools for agents over the Model Context Protocol (extra `mcp`).

Each connection has one caller: a role and a name. It sees only the tools of its role, and the engine checks every call
against the permission matrix again (`core.roles`).
"""
