"""What is known of each session and of its paused KV, and the recorder that is told of changes."""
