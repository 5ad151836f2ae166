"""Loading against recomputing over links of several rates, on the real engine."""
