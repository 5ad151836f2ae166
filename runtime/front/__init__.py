"""Several servers behind one address, as an application of Ray Serve. Needs the extra `front`."""
