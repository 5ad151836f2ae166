"""How long an application's models take: lengths, steps, loading and memory."""
