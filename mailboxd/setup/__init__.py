"""Getting started: what there is to set up beside an OpenClaw, doing it step by step, and taking it back."""
