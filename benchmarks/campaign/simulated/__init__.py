"""The scheduler that serves, around a fake runner and a fake link, under faults."""
