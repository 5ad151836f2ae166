"""Reports on studies: tables, charts and one page that holds both, for the terminal and for files.

`measures` says how each measure is called and written, `grids` lays tables out, `table`, `html`
and `plots` draw, `write` puts a report into a folder.
"""
