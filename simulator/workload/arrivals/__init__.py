"""When sessions arrive: by a random process, or as the requests of a trace did."""
