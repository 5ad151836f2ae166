"""The simulator: the scheduler that serves, in virtual time; workloads, machines and studies."""
