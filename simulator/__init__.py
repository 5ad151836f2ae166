"""The simulator: the serving scheduler in virtual time, with workloads, machines and studies."""
