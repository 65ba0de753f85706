"""What a workspace tells instruments of others: metrics for Prometheus, traces for OpenTelemetry.

All of it is read from the database and the daemon's note of its health, by a process beside the daemon: the daemon
itself measures nothing, counts nothing and speaks to no network.
"""
