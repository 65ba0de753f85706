"""The auditor's tool: judges archives alone, without workspace, daemon, database or private key.

`reading` opens what was handed in; `record` follows a journal line by line and keeps its facts; `rules`, `approvals`,
`evidence` and `crossing` judge facts and raise nothing; `perform` puts them together, and `report` shows the result.
Every byte is untrusted, nothing is written, and no link is followed.
"""
