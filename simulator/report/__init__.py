"""Reports on studies: tables, charts and one page with both, for the terminal and for files.

`measures` has the names and units of measures, and `grids` lays tables out. `table`, `html` and
`plots` draw them, and `write` writes a report into a folder.
"""
