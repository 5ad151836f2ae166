"""The APIs that run models: chat completions and messages, and what they share."""
