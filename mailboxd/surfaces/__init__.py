"""What people and programs look at and give orders through: the page, typed tools, metrics, task.md."""
