"""Control messages from the API process to the scheduler: who may send them, and what they do."""
