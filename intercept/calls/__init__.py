"""Call formats: how models write calls, and where a call ends in a stream of tokens or text."""
