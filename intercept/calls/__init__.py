"""Reading calls: how models write them, and where one ends in a stream of tokens or text."""
