"""What the page costs the browser: frames, CPU time and heap, before and after a change.

`pages` has the page of a revision; `life` and `crowd` make traffic; `server` serves it as it comes
and `exports` writes it into files; `tab` measures in Chromium; `live`, `opened` and `tables` are
the two series and their tables.
"""
