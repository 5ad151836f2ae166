"""JSON schemas: from functions, of arguments and of settings; one sentence for each error."""
