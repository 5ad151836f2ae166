"""What every request meets, whatever it asks for: sockets, its body, access, errors, streams."""
