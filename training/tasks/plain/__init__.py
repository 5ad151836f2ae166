"""Questions for the calculator and for tools that others write, and those without a tool."""
