"""`mailboxd doctor`: find what keeps this workspace from working, and how to fix it. Changes nothing.

diagnose.py   runs all probes, then all checks; `GROUPS` lists the checks
facts.py      what probes return and what checks report
machine.py, workspace.py, keys.py, openclaw.py, agent.py
              one area each: pure checks first, then the probes that collect their facts
canary.py     one real turn and message, on request
"""
