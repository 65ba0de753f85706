"""The hub process: it carries mail, jobs and files between the workspaces of this user and the server.

run, hub                          runs the parts, and puts them together
here, workspaces                  this host, and the workspaces of its user
sending, receiving, receipts      mail; attachments: the files that go with it
under_way, tracking               what has no receipt yet, and what its receivers say of it
jobs_given, jobs_held             the two ends of pools, over pool_tables at the server
requests                          what hosts ask each other; queries: the answers from the workspaces here
presence, news                    who is there, and what waits for a person there
founding, joining, only_one       who belongs to the hub
reporting, commands, probe        for daemons, commands and the doctor
"""
