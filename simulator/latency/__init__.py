"""How long a step takes on the machines that are simulated, and which machines there are."""
