"""The checks: each is a pure function from the facts to findings. Where its fact is missing it says nothing."""
