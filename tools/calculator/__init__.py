"""The calculator: exact arithmetic on text that a model wrote."""
