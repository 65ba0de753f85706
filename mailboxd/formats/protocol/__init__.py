"""Files <-> typed records: messages, specs, plans and task.md; answers of agents; prompts from templates."""
