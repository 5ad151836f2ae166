"""Child processes that end with their parent, with every process that they started."""
