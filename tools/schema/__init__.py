"""JSON schemas from functions, and checks of arguments and settings with one-sentence errors."""
