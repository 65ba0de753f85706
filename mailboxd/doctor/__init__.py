"""What stands between this workspace and finished work: facts are gathered at the edge, pure checks judge them.

probes/     look at the machine, the workspace, OpenClaw; each has its own limit of time, and changes nothing
facts.py    what they found
checks/     facts to findings, without a look at anything; `table.py` lists them all
canary.py   a real round trip, when it is asked for
"""
