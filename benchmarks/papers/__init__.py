"""What the papers compute by hand, computed with what is used here."""
