"""The fault campaign: sessions under faults that a seed chooses, and what must hold afterwards."""
