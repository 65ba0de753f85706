"""Metrics for Prometheus and traces for OpenTelemetry.

Both are read from the database and the daemon's health file by a process beside the daemon. The daemon itself counts
nothing and opens no network connection for them.
"""
