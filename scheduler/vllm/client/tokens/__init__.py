"""What the tokens of a model stand for: their lengths, their text, and text that is no token."""
