"""Reports as HTML: of functions that were run and measured (page), of logs and traces that were read (read)."""
