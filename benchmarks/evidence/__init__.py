"""Every measured figure of the docs: questions, kept results, and the blocks that show them."""
