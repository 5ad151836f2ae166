"""What goes into an engine: messages and media become tokens, by the model's own template."""
