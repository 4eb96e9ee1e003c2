"""From a planned pipeline to the files of a build: `views` decide, `templates/` lay out, `files` writes."""
