"""`mailboxd doctor`: find what keeps this workspace from working, and how to fix it. Changes nothing.

diagnose.py   runs all probes, then all checks; `GROUPS` lists the checks
facts.py      what probes return and what checks report
machine.py, workspace.py, openclaw.py, agent.py
              one area each: pure checks, and the probes that collect their facts
"""
