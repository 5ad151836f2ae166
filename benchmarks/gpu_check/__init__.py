"""What can't be known on CPUs, checked on a machine with a GPU: `make gpu-check`."""
